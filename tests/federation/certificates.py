"""Certificates for tests: quick ones, and every sort that must be refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from veracausa.wire.credentials import Credentials


class Authority:
    """A federation's authority, in a folder of its own."""

    def __init__(self, folder: Path, name: str = "root", elliptic: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._elliptic = folder, elliptic
        self._key, self._name = self._new_key(), _named(name)
        self.root = folder / "root.pem"
        builder = self._builder(self._name, self._key, -timedelta(days=1), timedelta(days=30))
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = builder.add_extension(usage, True).sign(self._key, hashes.SHA256())
        self.root.write_bytes(certificate.public_bytes(Encoding.PEM))

    def member(
        self,
        name: str,
        start: timedelta = -timedelta(days=1),
        end: timedelta = timedelta(days=30),
        file: str | None = None,
    ) -> Credentials:
        """A member's key and certificate; `file` where another one of that name lies already."""
        key = self._new_key()
        own = Credentials(self.root, self.folder / f"{file or name}.pem", self.folder / f"{file or name}.key")
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        usage = x509.KeyUsage(True, False, self._elliptic is False, False, False, False, False, False, False)
        builder = self._builder(_named(name), key, start, end).add_extension(x509.BasicConstraints(False, None), True)
        certificate = builder.add_extension(names, False).add_extension(usage, True).sign(self._key, hashes.SHA256())
        own.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        own.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        own.key.chmod(0o600)
        return own

    def _builder(self, name: x509.Name, key: Any, start: timedelta, end: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        issuer = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now + start)
            .not_valid_after(now + end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), False)
        )

    def _new_key(self) -> Any:
        return ec.generate_private_key(ec.SECP256R1()) if self._elliptic else rsa.generate_private_key(65537, 2048)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
