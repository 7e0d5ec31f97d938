"""Keys made where they stay: a federation's authority, a member's key and request, and the certificate in return.

Keys are on the curve P-256. NVIDIA FLARE's provisioning makes RSA keys of 2048 bits and no others, so it is not used.
Its transports take these certificates as they take its own.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.atomic import atomic_write
from veracausa.errors import InputError
from veracausa.wire.credentials import check_dates, read_certificate, read_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import (
        Certificate,
        CertificateBuilder,
        CertificateSigningRequest,
        GeneralName,
        KeyUsage,
        Name,
    )

SMALLEST_KEY = 2048
"""Bits of an RSA key: federations from before have such keys, and renew their certificates."""
CURVES = ("secp256r1", "secp384r1", "secp521r1")
ROOT_DAYS = 1825
MEMBER_DAYS = 90
_SKEW = timedelta(minutes=5)
"""By which other machines' clocks may be behind when a certificate is new."""


def need_flare() -> None:
    """Say how to install what an identity is made with, where it is missing."""
    if importlib.util.find_spec("nvflare") is None:
        raise InputError("NVIDIA FLARE is not installed; run: pip install 'veracausa[federation]'")


@dataclass(frozen=True)
class Authority:
    """What signs a federation's certificates. Its key stays with the coordinator."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "rootCA.pem"

    @property
    def key(self) -> Path:
        return self.folder / "rootCA.key"

    def issued(self, member: str) -> Path:
        """The last certificate that a member was given."""
        return self.folder / "issued" / f"{member}.pem"

    def check(self, now: datetime) -> None:
        """Refuse an authority that is not here, or whose time is over."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: no such folder; only the coordinator, who ran `init`, can approve")
        check_dates(self.root, read_certificate(self.root), now)
        read_key(self.key)


def make_authority(folder: Path, federation: str, days: int = ROOT_DAYS) -> Authority:
    """A new root key and its certificate, in a folder of their own."""
    from cryptography import x509

    authority = Authority(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority.issued("").parent.mkdir()
    key, name = _new_key(), _named(federation)
    now = datetime.now(UTC)
    certificate = (
        _builder(name, name, key.public_key(), key.public_key(), now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("digital_signature", "key_cert_sign", "crl_sign"), critical=True)
        .sign(key, _sha256())
    )
    write_secret(authority.key, _pem(key))
    authority.root.write_bytes(_pem(certificate))
    return authority


def make_key(identity: Path, member: str) -> bytes:
    """A new private key in `identity/key.pem`, readable by its owner alone; the request for its certificate (PEM)."""
    from cryptography import x509

    path = identity / "key.pem"
    if path.exists():
        raise InputError(f"{path}: there is a key already; keep it, or take another folder")
    identity.mkdir(mode=0o700, exist_ok=True)
    key = _new_key()
    request = x509.CertificateSigningRequestBuilder(_named(member)).sign(key, _sha256())
    write_secret(path, _pem(key))
    return _pem(request)


def sign(authority: Authority, request: bytes, member: str, hosts: Sequence[str], days: int) -> bytes:
    """The certificate (PEM) for a checked request: the member's name, the hosts others dial it at, a time limit.

    Of the request only the key is taken over, and nothing else that its maker wrote there.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = check_request(request, member).public_key()
    root, root_key = read_certificate(authority.root), read_key(authority.key)
    now = datetime.now(UTC)
    end = min(now + timedelta(days=days), root.not_valid_after_utc)
    # The member's name too: a grpc dialler can then ask for it, whatever the host is called.
    names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys((*hosts, member))])
    builder = (
        _builder(root.subject, _named(member), root.public_key(), key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(names, critical=False)
    )
    certificate = _pem(builder.sign(root_key, _sha256()))  # type: ignore[arg-type]
    atomic_write(authority.issued(member), certificate)
    return certificate


def check_request(request: bytes, member: str) -> CertificateSigningRequest:
    """Refuse a request that is not signed by its own key, is someone else's, or has a weak key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509.oid import NameOID

    try:
        read = x509.load_pem_x509_csr(request)
        sound = read.is_signature_valid
        names = [str(name.value) for name in read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        key = read.public_key()
    except ValueError:
        raise InputError("request.csr: is not a certificate request; ask the member to join again") from None
    if not sound:
        raise InputError("request.csr: its signature is wrong; ask the member to send it again")
    if names != [member]:
        raise InputError(f"request.csr: asks for the name {', '.join(names)!r}, but is said to be of {member!r}")
    elliptic = isinstance(key, EllipticCurvePublicKey) and key.curve.name in CURVES
    if not elliptic and not (isinstance(key, RSAPublicKey) and key.key_size >= SMALLEST_KEY):
        raise InputError("request.csr: needs a key on the curve P-256 or a stronger one; ask the member to join again")
    return read


def write_secret(path: Path, content: bytes) -> None:
    """A new file that only its owner can read, from its first moment on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _builder(issuer: Name, subject: Name, signer: Any, key: Any, start: datetime, end: datetime) -> CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), start - _SKEW, end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*uses: str) -> KeyUsage:
    from cryptography import x509

    all_uses = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{use: use in uses for use in all_uses})


def _named(name: str) -> Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _host(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _sha256() -> SHA256:
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


def _pem(made: EllipticCurvePrivateKey | Certificate | CertificateSigningRequest) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if isinstance(made, EllipticCurvePrivateKey):
        return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM)
