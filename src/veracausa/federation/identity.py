"""Keys made where they stay: a federation's authority, a member's key and request, and the certificate in return.

The certificates are made by NVIDIA FLARE's own distributed provisioning, so that they are what its transports expect.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from veracausa.errors import InputError, RunError
from veracausa.wire.credentials import check_dates, read_certificate, read_key

if TYPE_CHECKING:
    from datetime import datetime

    from cryptography.x509 import CertificateSigningRequest

SMALLEST_KEY = 2048
"""Bits of an RSA key."""
ROOT_DAYS = 1825
MEMBER_DAYS = 365


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
    from nvflare.tool.cert.cert_commands import handle_cert_init

    with TemporaryDirectory() as scratch:
        profile = Path(scratch) / "project_profile.yaml"
        profile.write_text(f"name: {json.dumps(federation)}\n", encoding="utf-8")
        asked = argparse.Namespace(
            profile=str(profile), output_dir=str(folder), org=None, force=False, valid_days=days, deploy_version=None
        )
        with _quiet():
            handle_cert_init(asked)
    # FLARE notes there where it read the name of the federation: a path that means nothing any more.
    about = folder / "ca.json"
    kept = {key: value for key, value in json.loads(about.read_text()).items() if key != "project_profile"}
    about.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    authority = Authority(folder)
    authority.issued("").parent.mkdir()
    return authority


def make_key(identity: Path, member: str) -> bytes:
    """A new private key in `identity/key.pem`, readable by its owner alone; the request for its certificate (PEM)."""
    from nvflare.tool.cert.cert_commands import generate_csr_files

    key = identity / "key.pem"
    if key.exists():
        raise InputError(f"{key}: there is a key already; keep it, or take another folder")
    identity.mkdir(mode=0o700, exist_ok=True)
    with TemporaryDirectory(dir=identity) as scratch:
        with _quiet():
            made = generate_csr_files(member, None, "client", scratch)
        request = Path(made["csr_path"]).read_bytes()
        Path(made["key_path"]).rename(key)
    return request


def sign(authority: Authority, request: bytes, member: str, hosts: Sequence[str], days: int) -> bytes:
    """The certificate (PEM) for a checked request: the member's name, the hosts others dial it at, a time limit."""
    from nvflare.tool.cert.cert_commands import sign_csr_files

    check_request(request, member)
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "request.csr"
        path.write_bytes(request)
        with _quiet():
            made = sign_csr_files(
                str(path),
                str(authority.folder),
                scratch,
                # Only this kind takes hosts; what a certificate may be used for is the same for both kinds.
                cert_type="server" if hosts else "client",
                valid_days=days,
                server_default_host=hosts[0] if hosts else None,
                # The member's name too: a grpc dialler can then ask for it, whatever the host is called.
                server_additional_hosts=[*hosts[1:], member],
            )
        certificate = Path(made["signed_cert"]).read_bytes()
        shutil.copyfile(made["signed_cert"], authority.issued(member))
    return certificate


def check_request(request: bytes, member: str) -> CertificateSigningRequest:
    """Refuse a request that is not signed by its own key, is someone else's, or has a weak key."""
    from cryptography import x509
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
    if not isinstance(key, RSAPublicKey) or key.key_size < SMALLEST_KEY:
        raise InputError(f"request.csr: needs an RSA key of {SMALLEST_KEY} bits or more; ask the member to join again")
    return read


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """FLARE's commands print, and leave the process where they fail: here they do neither."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            yield
    except SystemExit as error:
        if error.code:
            raise RunError(f"FLARE's provisioning failed: {' '.join(said.getvalue().split())}") from None
