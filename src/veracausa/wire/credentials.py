"""One organisation's private key, its certificate and the federation's root: read, shown and checked."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import threading
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate, CertificateSigningRequest


SOON = timedelta(days=30)
"""A certificate that ends sooner is to be renewed."""


@dataclass(frozen=True)
class Credentials:
    """Three files: the root that is trusted, one's own certificate, and the key that never leaves home.

    And where there is one, the deny list.
    """

    root: Path
    certificate: Path
    key: Path
    denied: Path | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> Credentials:
        """The identity that `veracausa federation join` or `init --as` made in a federation's folder."""
        identity = folder / "identity"
        own = (identity / "root.pem", identity / "certificate.pem", identity / "key.pem")
        return cls(*own, folder / FILE)

    @property
    def common_name(self) -> str:
        """The member whose certificate it is."""
        return common_name(read_certificate(self.certificate))

    @property
    def fingerprint(self) -> str:
        """Of the certificate: what partners compare."""
        return fingerprint(read_certificate(self.certificate))

    @property
    def root_fingerprint(self) -> str:
        """Of the federation's root."""
        return fingerprint(read_certificate(self.root))

    @property
    def expires(self) -> datetime:
        """When the first of certificate and root does."""
        return min(read_certificate(path).not_valid_after_utc for path in (self.certificate, self.root))

    def expires_soon(self, now: datetime | None = None) -> str:
        """A sentence where the certificate is to be renewed; empty: there is time."""
        now = now or datetime.now(UTC)
        own = read_certificate(self.certificate)
        left = self.expires - now
        if left >= SOON:
            return ""
        first = read_certificate(self.root) if self.expires < own.not_valid_after_utc else own
        days = f"{left.days} days" if left.days != 1 else "1 day"
        which = "the federation's root" if first is not own else f"the certificate of {common_name(own)}"
        return f"{which} expires in {days}, on {self.expires:%Y-%m-%d}; {_renew(first)}"

    def check(self, name: str, now: datetime | None = None) -> None:
        """Refuse an identity that is not `name`'s, not valid now, not signed by the root, or without its key."""
        root, own = read_certificate(self.root), read_certificate(self.certificate)
        if common_name(own) != name:
            raise InputError(
                f"{self.certificate}: is the certificate of {common_name(own)!r}, not of {name!r}; "
                "use the folder that this member joined with"
            )
        for path, certificate in ((self.root, root), (self.certificate, own)):
            check_dates(path, certificate, now or datetime.now(UTC))
        check_signature(self.certificate, own, root)
        if public_bytes(read_key(self.key)) != public_bytes(own):
            raise InputError(f"{self.key}: does not belong to {self.certificate}; join again with a new key")
        denied = DenyList(self.denied).refuses(peer_certificate(own))
        if denied is not None:
            raise InputError(
                f"{self.certificate}: was revoked here ({self.denied} names {denied}); join anew in another folder"
            )

    def for_flare(self) -> dict[str, str]:
        """The settings of FLARE's transports: one identity, whether it dials or listens."""
        certificate, key = str(self.certificate.absolute()), str(self.key.absolute())
        denied = {} if self.denied is None else {DENIED: str(self.denied.absolute())}
        return {
            **denied,
            "ca_cert": str(self.root.absolute()),
            "server_cert": certificate,
            "server_key": key,
            "client_cert": certificate,
            "client_key": key,
        }


DENIED = "denied_certificates"
"""The setting by which the transports find the deny list."""


def peer_certificate(certificate: Certificate) -> PeerCertificate:
    """The certificate as a peer shows it."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return PeerCertificate(certificate.public_bytes(Encoding.DER))


def read_certificate(path: Path) -> Certificate:
    """The certificate of a PEM file."""
    from cryptography import x509

    content = _read(path)
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise InputError(f"{path}: is not a certificate in PEM form; ask for the file again") from None


def read_key(path: Path) -> PrivateKeyTypes:
    """The private key of a PEM file that only its owner can read."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read(path, secret=True)
    try:
        return load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        raise InputError(f"{path}: is not a private key in PEM form without a password; join again") from None


def common_name(certificate: Certificate) -> str:
    """The one name that identifies its holder; empty where there is none or more than one."""
    from cryptography.x509.oid import NameOID

    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def fingerprint(certificate: Certificate) -> str:
    """SHA-256 of the certificate, in groups that can be read out on the telephone."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return grouped(certificate.public_bytes(Encoding.DER))


def grouped(content: bytes) -> str:
    """SHA-256 of the content: sixteen groups of four hexadecimal digits."""
    return grouped_digits(hashlib.sha256(content).hexdigest())


def public_bytes(holder: PrivateKeyTypes | Certificate | CertificateSigningRequest) -> bytes:
    """The public key of a key, certificate or request, to compare."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def check_dates(path: Path, certificate: Certificate, now: datetime) -> None:
    """Refuse a certificate whose time is over or has not come."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if end <= now:
        raise InputError(f"{path}: expired on {end:%Y-%m-%d %H:%M} UTC; {_renew(certificate)}")
    if start > now:
        raise InputError(f"{path}: is not valid before {start:%Y-%m-%d %H:%M} UTC; set this machine's clock right")


def _renew(certificate: Certificate) -> str:
    if certificate.issuer == certificate.subject:
        return "the coordinator must found the federation anew"
    return f"let the coordinator approve {common_name(certificate)}.request.zip again, and join with --signed"


def check_signature(path: Path, certificate: Certificate, root: Certificate) -> None:
    """Refuse a certificate that the root did not sign."""
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        raise InputError(f"{path}: is not signed by this federation's root; ask the coordinator for it again") from None


def _read(path: Path, secret: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            if secret and os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise InputError(f"{path}: others can read this private key; run: chmod 600 {path}")
            return file.read()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; `veracausa federation join` makes an identity") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check its permissions") from None


FILE = "denied.toml"
RELOAD_S = 2.0
"""Seconds between two reads of the list while connected: so soon a revoked certificate is out."""
_HEAD = """\
# Certificates and keys that get in here no more, each by its SHA-256. `veracausa federation revoke` adds to it.
"""
_SEPARATORS = str.maketrans("", "", " :-=\n\t")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PeerCertificate:
    """The certificate that a peer has presented, as it came."""

    der: bytes

    @cached_property
    def certificate(self) -> str:
        """SHA-256 of the certificate."""
        return hashlib.sha256(self.der).hexdigest()

    @cached_property
    def key(self) -> str:
        """SHA-256 of its public key: a renewed certificate has the same."""
        from cryptography import x509

        return hashlib.sha256(public_bytes(x509.load_der_x509_certificate(self.der))).hexdigest()


def bare(fingerprint: str) -> str:
    """A fingerprint's 64 hexadecimal digits, however it is written."""
    return fingerprint.lower().removeprefix("sha256").translate(_SEPARATORS)


def is_fingerprint(digits: str) -> bool:
    """Whether these are the 64 digits of a SHA-256."""
    return re.fullmatch(r"[0-9a-f]{64}", digits) is not None


def grouped_digits(digits: str) -> str:
    """Sixteen groups of four, as partners read them out."""
    return " ".join(digits.upper()[at : at + 4] for at in range(0, len(digits), 4))


class DenyList:
    """The deny list in one file. No file is an empty list. Many threads may ask it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._state: tuple[int, int] | None = None
        self._denied: frozenset[str] = frozenset()
        self._read()

    def refuses(self, shown: PeerCertificate) -> str | None:
        """The fingerprint for which a peer is refused, in groups; None: it may come in."""
        denied = self.now()
        for digits in (shown.certificate, shown.key) if denied else ():
            if digits in denied:
                return grouped_digits(digits)
        return None

    def now(self) -> frozenset[str]:
        """What is denied now. If the file is damaged while in use, the list as it was stays in force."""
        with self._lock:
            try:
                self._read()
            except InputError as error:
                _log.warning("%s; the list as it was before stays in force", error)
            return self._denied

    def add(self, entries: Iterable[dict[str, str]]) -> int:
        """Write further entries into the file; how many were new."""
        import tomli_w

        from veracausa.atomic import atomic_write

        assert self.path is not None
        kept = _entries(self.path)
        known = {bare(entry["sha256"]) for entry in kept}
        when = datetime.now(UTC).isoformat(timespec="seconds")
        new = [{**entry, "since": when} for entry in entries if bare(entry["sha256"]) not in known]
        if new:
            text = tomli_w.dumps({"denied": [*kept, *new]}, multiline_strings=False)
            atomic_write(self.path, (_HEAD + text).encode())
        return len(new)

    def _read(self) -> None:
        if self.path is None:
            return
        try:
            about = self.path.stat()
        except FileNotFoundError:
            self._state, self._denied = None, frozenset()
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}; check its permissions") from None
        state = (about.st_mtime_ns, about.st_size)
        if state != self._state:
            self._state = state  # also of a damaged one, which is then complained of once
            self._denied = frozenset(bare(entry["sha256"]) for entry in _entries(self.path))


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = tree.pop("denied", [])
        sound = not tree and all(is_fingerprint(bare(entry["sha256"])) for entry in entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise InputError(
            f'{path}: is damaged; each entry is [[denied]] with sha256 = "64 hexadecimal digits". '
            "Mend it, or remove it and run `veracausa federation revoke` again"
        )
    return list(entries)
