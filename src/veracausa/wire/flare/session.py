"""Sessions: two parties authenticate each other, and agree on keys that no relay has.

Each draws a fresh X25519 key and signs both keys, both names and what the session is for, with its certificate's key.
The certificate must come from the federation's own authority, name the party, and be valid today. The keys of a
session are derived from the secret that both computed, one for each direction. A frame's number is its nonce, and its
head is authenticated with it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgpack
import torch

from veracausa.errors import WireError
from veracausa.wire.credentials import (
    Credentials,
    DenyList,
    PeerCertificate,
    fingerprint,
    peer_certificate,
    read_certificate,
    read_key,
)
from veracausa.wire.flare.frames import Frame, StaleFrame, room

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_MAX_PEM = 1 << 15
_LIFE = 8
TAG = 16
"""Bytes that encryption adds to a body."""
_NOTE = b"note"
"""Sets the nonces of notes apart from those of numbered frames."""
_LATE = 256
"""How many notes may overtake one: the engine hands frames to many threads, so that honest ones come out of order."""


class SeenNotes:
    """Which of a peer's notes were read, so that none is read twice. What is too old to be known counts as read."""

    def __init__(self) -> None:
        self._highest, self._bits = -1, 0
        self._lock = threading.Lock()

    def first_time(self, number: int) -> bool:
        """Whether a note of this number has not been read before; from now on it has."""
        with self._lock:
            ahead = number - self._highest
            if ahead > 0:
                # Bit k stands for the number that is k below the highest.
                self._bits = ((self._bits << ahead) if ahead < _LATE else 0) & ((1 << _LATE) - 1) | 1
                self._highest = number
                return True
            if -ahead >= _LATE or self._bits >> -ahead & 1:
                return False
            self._bits |= 1 << -ahead
            return True


class PeerIdentity:
    """One party's certificate and key, and how it knows others."""

    def __init__(self, name: str, credentials: Credentials) -> None:
        credentials.check(name)
        self.name = name
        self.pem = credentials.certificate.read_bytes()
        self._key: Any = read_key(credentials.key)
        self._root = read_certificate(credentials.root)
        self._deny_list = DenyList(credentials.denied)

    def sign(self, text: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

        if isinstance(self._key, RSAPrivateKey):
            return self._key.sign(text, _pss(), _sha256())
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

        signature: bytes = self._key.sign(text, ECDSA(_sha256()))
        return signature

    def verify(self, pem: bytes, name: str, text: bytes, signature: bytes) -> Certificate:
        """The certificate with which `name` signed the text; refused unless it is valid now, and was not revoked."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

        try:
            certificate = x509.load_pem_x509_certificate(pem)
            certificate.verify_directly_issued_by(self._root)
            named = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion):
            raise WireError("certificate", f"of {name!r} is not of this federation's authority") from None
        if [attribute.value for attribute in named] != [name]:
            raise WireError("certificate", f"names another party than {name!r}")
        now = datetime.now(UTC)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise WireError("certificate", f"of {name!r} is not valid today")
        revoked = self._deny_list.refuses(peer_certificate(certificate))
        if revoked is not None:
            raise WireError("certificate", f"of {name!r} was revoked ({revoked})")
        key = certificate.public_key()
        try:
            if isinstance(key, RSAPublicKey):
                key.verify(signature, text, _pss(), _sha256())
            elif isinstance(key, EllipticCurvePublicKey):
                key.verify(signature, text, ECDSA(_sha256()))
            else:
                raise WireError("certificate", f"of {name!r} has a key of an unknown sort")
        except InvalidSignature:
            raise WireError("signature", f"was not made by {name!r}") from None
        return certificate


@dataclass(frozen=True)
class Session:
    """What two parties share once they have authenticated each other."""

    id: bytes
    sealed: bool
    life: bytes
    """Changes whenever the peer restarts."""
    fingerprint: str
    """Of the peer's certificate."""
    mine: Any = field(repr=False)
    theirs: Any = field(repr=False)
    shown: PeerCertificate | None = None
    """The certificate itself: it may be revoked while the session lasts."""
    _notes: Iterator[int] = field(default_factory=itertools.count, repr=False)
    _read: SeenNotes = field(default_factory=SeenNotes, repr=False, compare=False)

    def seal(self, number: int, head: bytes, body: bytes | memoryview) -> bytes:
        sealed: bytes = self.mine.encrypt(_nonce(number), body, head)
        return sealed

    def seal_frame(self, number: int, head: bytes, body: memoryview) -> Frame:
        """The head and the sealed body."""
        if not hasattr(self.mine, "encrypt_into"):  # before cryptography 47
            return head + self.seal(number, head, body)
        frame = memoryview(torch.empty(len(head) + len(body) + TAG, dtype=torch.uint8).numpy())  # type: ignore[arg-type]
        frame[: len(head)] = head
        self.mine.encrypt_into(_nonce(number), body, head, frame[len(head) :])
        return frame

    def open(self, number: int, head: bytes, body: memoryview) -> memoryview:
        from cryptography.exceptions import InvalidTag

        try:
            # Writable, so that tensors can be made of it without another copy.
            if len(body) < TAG or not hasattr(self.theirs, "decrypt_into"):
                return memoryview(bytearray(self.theirs.decrypt(_nonce(number), body, head)))
            clear = memoryview(room(len(body) - TAG).numpy())  # type: ignore[arg-type]
            self.theirs.decrypt_into(_nonce(number), body, head, clear)
            return clear
        except (InvalidTag, ValueError):
            raise WireError("frame", "was changed on its way") from None

    def note(self, head: bytes, text: bytes) -> bytes:
        """The body of a frame without a number: whoever carries a sealed session can not make one up either."""
        if not self.sealed:
            return text
        number = next(self._notes)
        sealed: bytes = self.mine.encrypt(_nonce(number, _NOTE), text, head)
        return number.to_bytes(8, "little") + sealed

    def read_note(self, head: bytes, body: memoryview) -> bytes:
        from cryptography.exceptions import InvalidTag

        if not self.sealed:
            return bytes(body)
        try:
            text: bytes = self.theirs.decrypt(bytes(body[:8]) + _NOTE, body[8:], head)
        except (InvalidTag, ValueError):
            raise WireError("frame", "was changed on its way") from None
        # Only now: a number that nobody sealed must not make a true one look like a replay.
        if not self._read.first_time(int.from_bytes(body[:8], "little")):
            raise StaleFrame("frame", "was replayed on its way")
        return text


class Opening:
    """One party's half of a session that is being made with one peer."""

    def __init__(self, me: PeerIdentity, peer: str, purpose: bytes, sealed: bool, life: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.me, self.peer, self.life = me, peer, life
        self.leads = me.name < peer
        self._purpose, self._sealed = purpose, sealed
        self._secret = X25519PrivateKey.generate()
        self.public = self._secret.public_key().public_bytes_raw()

    def offer(self) -> bytes:
        """What the leading party sends first."""
        return pack(key=self.public, life=self.life)

    def proof(self, their_key: bytes, their_life: bytes) -> bytes:
        """The signed proof of this party's identity."""
        text = self._transcript(their_key, their_life) + (b"leads" if self.leads else b"follows")
        return pack(key=self.public, life=self.life, pem=self.me.pem, signature=self.me.sign(text))

    def session(self, proof: bytes) -> Session:
        """The session with the peer that sent this proof. A wrong proof is refused."""
        fields = unpack(proof, ("key", "life", "pem", "signature"))
        transcript = self._transcript(fields["key"], fields["life"])
        role = b"follows" if self.leads else b"leads"
        known = self.me.verify(fields["pem"], self.peer, transcript + role, fields["signature"])
        return self._keys(fields["key"], fields["life"], transcript, known)

    def _keys(self, their_key: bytes, their_life: bytes, transcript: bytes, known: Certificate) -> Session:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        try:
            shared = self._secret.exchange(X25519PublicKey.from_public_bytes(their_key))
        except ValueError:
            raise WireError("key", f"of {self.peer!r} is not one") from None
        made = HKDF(_sha256(), 80, salt=transcript, info=b"veracausa session 1").derive(shared)
        leading, following = AESGCM(made[16:48]), AESGCM(made[48:80])
        mine, theirs = (leading, following) if self.leads else (following, leading)
        shown = peer_certificate(known)
        return Session(made[:16], self._sealed, their_life, fingerprint(known), mine, theirs, shown)

    def _transcript(self, their_key: bytes, their_life: bytes) -> bytes:
        mine, theirs = (self.me.name, self.public, self.life), (self.peer, their_key, their_life)
        first, second = (mine, theirs) if self.leads else (theirs, mine)
        parts = [b"veracausa session 1", self._purpose, b"sealed" if self._sealed else b"in TLS alone"]
        for name, key, life in (first, second):
            parts += [name.encode(), key, life]
        return hashlib.sha256(b"".join(len(part).to_bytes(4, "little") + part for part in parts)).digest()


def new_life() -> bytes:
    return os.urandom(_LIFE)


def unpack(body: bytes | memoryview, names: tuple[str, ...]) -> dict[str, bytes]:
    """The named fields of what a peer sent, each of bytes and of a size that it can have."""
    if len(body) > _MAX_PEM:
        raise WireError("session", f"{len(body)} bytes, at most {_MAX_PEM} are taken")
    try:
        fields = msgpack.unpackb(bytes(body), strict_map_key=True)
    except Exception as error:  # msgpack raises a family of its own on malformed bytes
        raise WireError("session", f"not msgpack ({type(error).__name__})") from None
    if not isinstance(fields, dict) or set(fields) != set(names):
        raise WireError("session", f"must hold exactly {', '.join(names)}")
    sizes = {"key": 32, "life": _LIFE}
    for name, value in fields.items():
        if type(value) is not bytes or len(value) != sizes.get(name, len(value)):
            raise WireError(f"session.{name}", "is of the wrong sort or size")
    return fields


def pack(**fields: bytes) -> bytes:
    """The fields as a peer unpacks them."""
    packed: bytes = msgpack.packb(fields)
    return packed


def _nonce(number: int, sort: bytes = bytes(4)) -> bytes:
    return number.to_bytes(8, "little") + sort


def _sha256() -> Any:
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


def _pss() -> Any:
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS

    return PSS(MGF1(_sha256()), PSS.DIGEST_LENGTH)
