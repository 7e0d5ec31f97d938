"""Who belongs to a federation: founding, requests, approval, joining and revocation.

The coordinator founds a federation and approves requests. A member makes its key at home, asks for a certificate, and
puts it in its place. Either can revoke a certificate, which puts it on the deny list of a folder.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from veracausa.atomic import atomic_write
from veracausa.errors import InputError
from veracausa.federation.identity import (
    MEMBER_DAYS,
    ROOT_DAYS,
    Authority,
    check_request,
    make_authority,
    make_key,
    sign,
)
from veracausa.federation.invitation import read_archive, write_archive
from veracausa.federation.members import first_problem, read_network, read_toml
from veracausa.wire.credentials import (
    FILE,
    Credentials,
    DenyList,
    bare,
    check_dates,
    common_name,
    fingerprint,
    grouped,
    grouped_digits,
    is_fingerprint,
    peer_certificate,
    public_bytes,
    read_certificate,
)
from veracausa.wire.network import NetworkOptions

INVITATION = ("federation.toml", "job.toml", "root.pem")
REQUEST = ("request.toml", "request.csr")
SIGNED = ("certificate.pem", "root.pem")


class Note(BaseModel):
    """What a request says beside the key: whose it is, and what the member was invited to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1, 2] = 1
    """Of the fingerprint: in the first one, which wrote no version, the lengths of the files were missing."""
    member: str
    federation: str
    sha256: dict[str, str]
    """Of the invitation's files."""


@dataclass(frozen=True)
class Request:
    """A member's request, read and found sound."""

    note: Note
    csr: bytes
    fingerprint: str
    """Of the whole request; the member reads the same one out."""


@dataclass(frozen=True)
class Approval:
    archive: Path
    fingerprint: str
    expires: datetime
    revoked: Revoked | None = None
    """The certificate that this one replaces."""


def server_name(server: str) -> str:
    """Who serves, of `NAME@host:port`."""
    name, at, _ = server.partition("@")
    if not at:
        raise InputError(f"--server {server}: write it as NAME@host:port; the others dial it there")
    return name


def describe(
    name: str,
    parties: Sequence[str],
    server: str,
    members: Sequence[str] = (),
    scheme: str = "tcp",
    route: str = "relayed",
) -> NetworkOptions:
    """The federation of a job's parties and its server; `NAME@host:port` gives a member an address."""
    addresses: dict[str, str | None] = dict.fromkeys(parties)
    own = server_name(server)
    for given in (server, *members):
        member, _, address = given.partition("@")
        if member not in addresses and given is not server:
            known = ", ".join(parties)
            raise InputError(f"--member {given}: {member!r} has no part in the job (its parties: {known})")
        addresses[member] = address or addresses.get(member)
    described = {
        "name": name,
        "server": own,
        "scheme": scheme,
        "route": route,
        "members": {member: {"address": address} for member, address in addresses.items()},
    }
    try:
        network = NetworkOptions.model_validate(described)
    except ValidationError as error:
        raise InputError(f"federation: {first_problem(error)}") from None
    check_names(network)
    return network


def check_names(network: NetworkOptions) -> None:
    """Refuse names that a certificate cannot tell apart."""
    for member, about in network.members.items():
        host = (about.address or "").rpartition(":")[0].lower()
        for other in network.members:
            if other != member and other.lower() == host:
                raise InputError(f"members.{member}.address: {host!r} is the name of a member; rename that member")


def parties_of(job: Path) -> tuple[str, ...]:
    """Who takes part in a job, which has nothing in it that is a party's own."""
    from veracausa.config import load_job

    tree = read_toml(job, f"`veracausa init {job}` writes a job to start from")
    if "party" in tree:
        raise InputError(f"{job}: [party.*] is a party's own and never leaves it; move it into that party's party.toml")
    if tree.get("kind") == "discovery":
        from veracausa.federation.discovery_job import members_of, read_agreed

        return members_of(*read_agreed(job))
    parties = load_job(job).parties
    return (parties.active, *parties.passive)


def found(folder: Path, network: NetworkOptions, job: Path, days: int = ROOT_DAYS) -> Authority:
    """Fill a new folder with the agreed files, the authority, and the invitation for the members."""
    (folder / "federation.toml").write_text(network.to_toml(), encoding="utf-8")
    (folder / "job.toml").write_bytes(job.read_bytes())
    authority = make_authority(folder / "authority", network.name, days)
    write_archive(folder / "invitation.zip", invited(folder, authority.root))
    return authority


def invited(folder: Path, root: Path) -> dict[str, bytes]:
    """The files of an invitation: nothing in them is secret."""
    return {
        "federation.toml": (folder / "federation.toml").read_bytes(),
        "job.toml": (folder / "job.toml").read_bytes(),
        "root.pem": root.read_bytes(),
    }


def read_request(folder: Path, archive: Path) -> Request:
    """A member's request, if it is sound and meant for this federation."""
    authority, network = Authority(folder / "authority"), read_network(folder / "federation.toml")
    authority.check(datetime.now(UTC))
    check_names(network)
    files = read_archive(archive, REQUEST, "a member's request")
    try:
        note = Note.model_validate(tomllib.loads(files["request.toml"].decode()))
    except (ValidationError, ValueError):
        raise InputError(f"{archive}: request.toml is damaged; ask for the request again") from None
    if note.member not in network.members:
        raise InputError(f"{archive}: {note.member!r} is no member of {network.name} ({', '.join(network.members)})")
    csr = check_request(files["request.csr"], note.member)
    renewal = _renewal(authority, note, files)
    if note.version == 1 and not renewal:
        raise InputError(
            f"{archive}: was made by an older veracausa, whose fingerprint does not cover all of it; "
            f"let {note.member} join anew with this version"
        )
    if is_revoked(folder, public_bytes(csr)):
        raise InputError(f"{archive}: its key was revoked; let {note.member} join anew in another folder")
    _check_invitation(archive, note, hashes(invited(folder, authority.root)), renewal)
    return Request(note, files["request.csr"], request_fingerprint(files, note.version))


def approve(
    folder: Path, request: Request, out: Path | None = None, days: int = MEMBER_DAYS, replace: bool = False
) -> Approval:
    """Sign a request. What goes back is the certificate and the root: nothing secret."""
    authority, network = Authority(folder / "authority"), read_network(folder / "federation.toml")
    member = request.note.member
    earlier = authority.issued(member)
    if earlier.exists() and not replace and not _same_key(earlier, request.csr):
        raise InputError(
            f"{member} has a certificate for another key already ({earlier}); "
            "if the member lost that key, approve with --replace, which also revokes it"
        )
    revoked = None
    if earlier.exists() and not _same_key(earlier, request.csr):
        revoked = revoke_certificate(folder, earlier)  # first: else a crash in between leaves two that get in
    address = network.members[member].address
    hosts = [address.rpartition(":")[0]] if address else []
    certificate = sign(authority, request.csr, member, hosts, days)
    archive = out or folder / f"{member}.signed.zip"
    write_archive(archive, {"certificate.pem": certificate, "root.pem": authority.root.read_bytes()})
    signed = read_certificate(earlier)
    return Approval(archive, fingerprint(signed), signed.not_valid_after_utc, revoked)


def hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each file."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def request_fingerprint(files: Mapping[str, bytes], version: int = 2) -> str:
    """One fingerprint for all of a request: whoever compares it has compared key, name, members and job.

    Each file with its length, so that no byte can move from one to the other. Without, as it was before, only where the
    key is known already.
    """
    parts = [files[name] for name in REQUEST]
    if version == 1:
        return grouped(b"".join(parts))
    return grouped(b"veracausa request 2" + b"".join(len(part).to_bytes(8, "little") + part for part in parts))


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two fingerprints are the same, however they are written."""
    bare = [text.upper().removeprefix("SHA256").translate(_SEPARATORS) for text in (one, other)]
    return bare[0] == bare[1]


_SEPARATORS = str.maketrans("", "", " :-=\n\t")


def _check_invitation(archive: Path, note: Note, ours: Mapping[str, str], renewal: bool) -> None:
    for name in INVITATION:
        # A certificate is renewed for the same authority, whatever became of the job since.
        if note.sha256.get(name) != ours[name] and (name == "root.pem" or not renewal):
            raise InputError(
                f"{archive}: {note.member} was invited with another {name} than the one here; "
                "send invitation.zip again, and let it join with that one"
            )


def _renewal(authority: Authority, note: Note, files: Mapping[str, bytes]) -> bool:
    earlier = authority.issued(note.member)
    return earlier.exists() and _same_key(earlier, files["request.csr"])


def _same_key(certificate: Path, csr: bytes) -> bool:
    from cryptography import x509

    return public_bytes(read_certificate(certificate)) == public_bytes(x509.load_pem_x509_csr(csr))


@dataclass(frozen=True)
class Joined:
    """What a member compares with the coordinator by telephone."""

    root: str
    request: str


def unpack_invitation(archive: Path, folder: Path) -> None:
    """Lay an invitation's files into a new folder, byte by byte."""
    files = read_archive(archive, INVITATION, "an invitation")
    for name in ("federation.toml", "job.toml"):
        (folder / name).write_bytes(files[name])
    lay_root(folder, files["root.pem"])
    with _errors_name(archive, folder):
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
    write_archive(folder / f"{member}.request.zip", files)
    atomic_write(folder / "identity" / "request.csr", csr)
    return Joined(fingerprint(read_certificate(root)), request_fingerprint(files))


def accept(folder: Path, archive: Path) -> Credentials:
    """Put the signed certificate in its place, if it is this member's, for this key, and of the root it trusts."""
    identity, own = folder / "identity", Credentials.of_folder(folder)
    asked = identity / "request.csr"
    if not asked.exists():
        raise InputError(f"{folder}: nothing was asked for here; join with the invitation first")
    files = read_archive(archive, SIGNED, "a signed certificate")
    with tempfile.TemporaryDirectory(dir=identity) as scratch, _errors_name(archive, Path(scratch)):
        given = {name: Path(scratch) / name for name in SIGNED}
        for name, path in given.items():
            path.write_bytes(files[name])
        if fingerprint(read_certificate(given["root.pem"])) != own.root_fingerprint:
            raise InputError(
                f"{archive}: is of another root than the invitation; ask the coordinator which one is right"
            )
        Credentials(own.root, given["certificate.pem"], own.key).check(_asked_name(asked))
    atomic_write(own.certificate, files["certificate.pem"])
    return own


@contextmanager
def _errors_name(archive: Path, folder: Path) -> Iterator[None]:
    """What is wrong with a file in a passing folder is said of the archive it came from."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(archive))) from None


def _asked_name(csr: Path) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    names = x509.load_pem_x509_csr(csr.read_bytes()).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value)


def _to_toml(note: Note) -> bytes:
    import tomli_w

    return tomli_w.dumps(note.model_dump(mode="json")).encode()


@dataclass(frozen=True)
class Revoked:
    """What was put on a list."""

    path: Path
    sha256: tuple[str, ...]
    """Of certificates and keys, in groups; the others put the same on theirs."""
    new: int


def revoke(folder: Path, what: Sequence[str]) -> Revoked:
    """Deny a member by name (at the coordinator), by a certificate file, or by fingerprints."""
    if not (folder / "federation.toml").is_file():
        raise InputError(f"{folder}: is no folder of a federation; name the one that `init` or `join` made")
    entries = [entry for one in what for entry in _entries(folder, one)]
    deny_list = DenyList(folder / FILE)
    new = deny_list.add(entries)
    return Revoked(folder / FILE, tuple(entry["sha256"] for entry in entries), new)


def revoke_certificate(folder: Path, certificate: Path) -> Revoked:
    """Deny a certificate and its key: what was signed for the same key before or after it is out, too."""
    return revoke(folder, [str(certificate)])


def is_revoked(folder: Path, key: bytes) -> bool:
    """Whether a public key is on the folder's list."""
    return hashlib.sha256(key).hexdigest() in DenyList(folder / FILE).now()


def _entries(folder: Path, what: str) -> list[dict[str, str]]:
    digits = bare(what)
    if is_fingerprint(digits):
        return [{"sha256": grouped_digits(digits)}]
    issued = Authority(folder / "authority").issued(what) if re.fullmatch(r"[\w-]+", what) else None
    path = issued if issued is not None and issued.is_file() else Path(what)
    if not path.is_file():
        raise InputError(
            f"{what}: is neither a fingerprint (64 hexadecimal digits), nor a certificate file, "
            f"nor a member that was approved in {folder}"
        )
    certificate = read_certificate(path)
    shown, member = peer_certificate(certificate), common_name(certificate)
    return [
        {"sha256": grouped_digits(shown.certificate), "of": "certificate", "member": member},
        {"sha256": grouped_digits(shown.key), "of": "key", "member": member},
    ]
