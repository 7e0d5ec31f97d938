"""A member's side: a key made at home, the request for its certificate, and the certificate put in its place."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from veracausa.errors import InputError
from veracausa.federation.identity import make_key
from veracausa.federation.members import read_network
from veracausa.federation.parcel import read_parcel, write_parcel
from veracausa.federation.provision import INVITATION, REQUEST, SIGNED, Note, hashes, invited, request_fingerprint
from veracausa.runs.atomic import write_whole
from veracausa.wire.credentials import Credentials, check_dates, fingerprint, read_certificate


@dataclass(frozen=True)
class Joined:
    """What a member compares with the coordinator by telephone."""

    root: str
    request: str


def unpack_invitation(parcel: Path, folder: Path) -> None:
    """Lay an invitation's files into a new folder, byte by byte."""
    files = read_parcel(parcel, INVITATION, "an invitation")
    for name in ("federation.toml", "job.toml"):
        (folder / name).write_bytes(files[name])
    lay_root(folder, files["root.pem"])
    with _said_of(parcel, folder):
        read_network(folder / "federation.toml")
        root = folder / "identity" / "root.pem"
        check_dates(root, read_certificate(root), datetime.now(UTC))


def lay_root(folder: Path, root: bytes) -> None:
    """Trust this root from now on."""
    identity = folder / "identity"
    identity.mkdir(mode=0o700, exist_ok=True)
    (identity / "root.pem").write_bytes(root)


def ask(folder: Path, member: str) -> Joined:
    """Make a key in the folder and the request beside it; only the request is to be sent."""
    network = read_network(folder / "federation.toml")
    if member not in network.members:
        raise InputError(f"--party {member}: is no member of {network.name} ({', '.join(network.members)})")
    root = folder / "identity" / "root.pem"
    csr = make_key(folder / "identity", member)
    note = Note(version=2, member=member, federation=network.name, sha256=hashes(invited(folder, root)))
    files = dict(zip(REQUEST, (_to_toml(note), csr), strict=True))
    write_parcel(folder / f"{member}.request.zip", files)
    write_whole(folder / "identity" / "request.csr", csr)
    return Joined(fingerprint(read_certificate(root)), request_fingerprint(files))


def accept(folder: Path, parcel: Path) -> Credentials:
    """Put the signed certificate in its place, if it is this member's, for this key, and of the root it trusts."""
    identity, own = folder / "identity", Credentials.of_folder(folder)
    asked = identity / "request.csr"
    if not asked.exists():
        raise InputError(f"{folder}: nothing was asked for here; join with the invitation first")
    files = read_parcel(parcel, SIGNED, "a signed certificate")
    with tempfile.TemporaryDirectory(dir=identity) as scratch, _said_of(parcel, Path(scratch)):
        given = {name: Path(scratch) / name for name in SIGNED}
        for name, path in given.items():
            path.write_bytes(files[name])
        if fingerprint(read_certificate(given["root.pem"])) != own.root_fingerprint:
            raise InputError(
                f"{parcel}: is of another root than the invitation; ask the coordinator which one is right"
            )
        Credentials(own.root, given["certificate.pem"], own.key).check(_asked_name(asked))
    write_whole(own.certificate, files["certificate.pem"])
    return own


@contextmanager
def _said_of(parcel: Path, folder: Path) -> Iterator[None]:
    """What is wrong with a file in a passing folder is said of the parcel it came from."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(parcel))) from None


def _asked_name(csr: Path) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    names = x509.load_pem_x509_csr(csr.read_bytes()).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value)


def _to_toml(note: Note) -> bytes:
    import tomli_w

    return tomli_w.dumps(note.model_dump(mode="json")).encode()
