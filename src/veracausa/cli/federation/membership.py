"""`veracausa federation init`, `join`, `approve` and `revoke`: who belongs to a federation, and by which keys."""

from __future__ import annotations

import sys
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.errors import InputError
from veracausa.escaping import escaped

# The options with which a party says what is its own. They end in its party.toml and nowhere else.
Data = Annotated[str | None, typer.Option("--data", metavar="FILE", help="This party's own table.")]
Id = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="The column that names a row.")]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="COL,COL", help="Its columns; default: all but id and label.")
]
Defense = Annotated[str | None, typer.Option("--defense", metavar="NAME", help="Its defense; see `veracausa list`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="K=V", help="data.K=V, defense.K=V or alignment.K=V of its own; repeatable."),
]


def _code_in(job: Path, allow_model: str | None) -> list[str]:
    """What a member should know of a job whose model is code, in lines; refuses a permission for other code."""

    tree = tomllib.loads(job.read_text(encoding="utf-8"))
    model = tree.get("model", {})
    name = str(model.get("name", "")) if isinstance(model, dict) else ""
    if allow_model is not None and allow_model != name:
        raise InputError(f"--allow-model {allow_model}: the job's model is {name!r}; leave it out, or name that one")
    if ":" not in name or allow_model is not None:
        return []
    return [
        f"note: the job's model is {name!r}, code outside the registry. It runs nowhere unless the member itself "
        f'allows it: with [model] allow = "{escaped(name)}" in its party.toml, or --allow-model'
    ]


def _check_data(folder: Path, member: str, place: Path) -> None:
    """Look at the member's own data; `place` is what its folder will be called, for messages."""
    from veracausa.federation.party_file import check_own_data

    try:
        check_own_data(folder, member)
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(place))) from None


def _names(columns: str | None) -> tuple[str, ...]:
    """The columns of a list with commas."""
    return tuple(name.strip() for name in (columns or "").split(",") if name.strip())


class Scheme(StrEnum):
    tcp = "tcp"
    grpc = "grpc"


class Route(StrEnum):
    relayed = "relayed"
    direct = "direct"


def init(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The agreed job, without \\[party.*] tables.")],
    server: Annotated[
        str, typer.Option("--server", metavar="NAME@HOST:PORT", help="The member whose port the others dial.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The coordinator's folder, a new one.")],
    name: Annotated[str | None, typer.Option("--name", help="Of the federation; default: the job's.")] = None,
    member: Annotated[
        list[str] | None,
        typer.Option(
            "--member", metavar="NAME[@HOST:PORT]", help="A party with an address; default: the job's parties."
        ),
    ] = None,
    scheme: Annotated[Scheme, typer.Option("--scheme", help="What carries the messages.")] = Scheme.tcp,
    route: Annotated[
        Route, typer.Option("--route", help="relayed: all dial the server; direct: who has an address is dialled.")
    ] = Route.relayed,
    wire: Annotated[
        list[str] | None,
        typer.Option("--wire", metavar="K=V", help="A limit of the wire, such as patience_s=60; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How long the root is valid.")] = 1825,
    member_days: Annotated[int, typer.Option("--member-days", min=1, help="And the own certificate of --as.")] = 90,
    as_member: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The coordinator is this member: make its identity too.")
    ] = None,
    data: Data = None,
    id: Id = None,
    columns: Columns = None,
    defense: Defense = None,
    settings: Settings = None,
    allow_model: AllowModel = None,
) -> None:
    """Found a federation: its members, its job and its root, and an invitation that holds nothing secret."""
    from veracausa.cli import console
    from veracausa.federation import membership
    from veracausa.federation.identity import need_flare
    from veracausa.federation.invitation import new_folder
    from veracausa.federation.members import wire_limits
    from veracausa.federation.party_file import party_toml
    from veracausa.wire.credentials import Credentials, fingerprint, read_certificate

    need_flare()
    if as_member is None and any((data, id, columns, defense, settings, allow_model)):
        raise InputError(
            "--data, --id, --columns, --defense, --set and --allow-model are a member's own; "
            "say which one with --as NAME"
        )
    membership.server_name(server)  # a fault of the command comes before one of the job
    parties = membership.parties_of(job)
    network = membership.describe(name or _name_of(job), parties, server, member or (), scheme.value, route.value)
    network = network.model_copy(update={"wire": wire_limits(wire or ())})
    if as_member is not None and as_member not in network.members:
        raise InputError(f"--as {as_member}: is no member of {network.name} ({', '.join(network.members)})")
    text = party_toml(as_member or "", data, id, _names(columns), defense, settings or (), allow_model)
    notes = _code_in(job, allow_model)
    with new_folder(out) as folder:
        authority = membership.found(folder, network, job, days)
        if as_member is not None:
            (folder / "party.toml").write_text(text, encoding="utf-8")
            membership.lay_root(folder, authority.root.read_bytes())
            _check_data(folder, as_member, out)
            membership.ask(folder, as_member)
            request = membership.read_request(folder, folder / f"{as_member}.request.zip")
            membership.accept(folder, membership.approve(folder, request, days=member_days).archive)
    root = read_certificate(out / "authority" / "rootCA.pem")
    others = [member for member in network.members if member != as_member]
    served = f"{network.server} serves at {network.members[network.server].address} over {network.scheme}"
    lines = [
        f"federation {network.name}: {', '.join(network.members)}; {served}",
        f"root        {fingerprint(root)}",
        f"            valid until {root.not_valid_after_utc:%Y-%m-%d}",
    ]
    if as_member is not None:
        own_identity = Credentials.of_folder(out)
        lines += [
            f"{as_member:<11} {own_identity.fingerprint}",
            f"            valid until {own_identity.expires:%Y-%m-%d}",
        ]
    lines += [
        f"Keep {out / 'authority'} to yourself: whoever has its key can be any member.",
        f"Next: send {out / 'invitation.zip'} to {_and(others)}, and compare the root's fingerprint by telephone.",
        *notes,
    ]
    console.out.print("\n".join(lines), markup=False, soft_wrap=True)


def _name_of(job: Path) -> str:
    return str(tomllib.loads(job.read_text(encoding="utf-8")).get("name", "federation"))


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def join(
    source: Annotated[
        Path, typer.Argument(metavar="INVITATION.zip | FOLDER", help="The invitation; with --signed, the folder.")
    ],
    party: Annotated[str | None, typer.Option("--party", metavar="NAME", help="Who joins.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="The party's folder, a new one.")] = None,
    signed: Annotated[
        Path | None, typer.Option("--signed", metavar="FILE", help="What the coordinator sent back after `approve`.")
    ] = None,
    root: Annotated[
        str | None,
        typer.Option("--fingerprint", metavar="HEX", help="The root's, as the coordinator read it out: compare it."),
    ] = None,
    data: Data = None,
    id: Id = None,
    columns: Columns = None,
    defense: Defense = None,
    settings: Settings = None,
    allow_model: AllowModel = None,
) -> None:
    """Join a federation: first with the invitation, then with the signed certificate.

    The private key is made here and stays here, and so does party.toml. Only NAME.request.zip is sent.
    """
    from veracausa.federation.identity import need_flare

    need_flare()
    if signed is not None:
        if any((party, out, root, data, id, columns, defense, settings, allow_model)):
            raise InputError("--signed: leave the other options out; what is the party's own stands in party.toml")
        _accept(source, signed)
        return
    if party is None or out is None:
        raise InputError("join INVITATION.zip: say who joins with --party NAME, and where with --out FOLDER")
    from veracausa.federation.party_file import party_toml

    own_part = party_toml(party, data, id, _names(columns), defense, settings or (), allow_model)
    _ask(source, party, out, root, own_part, allow_model)


def _ask(invitation: Path, party: str, out: Path, root: str | None, own_part: str, allow_model: str | None) -> None:
    from veracausa.cli import console
    from veracausa.federation.invitation import new_folder
    from veracausa.federation.membership import ask, same_fingerprint, unpack_invitation

    with new_folder(out) as folder:
        unpack_invitation(invitation, folder)
        (folder / "party.toml").write_text(own_part, encoding="utf-8")
        joined = ask(folder, party)
        if root is not None and not same_fingerprint(root, joined.root):
            raise InputError(
                f"{invitation}: its root is {joined.root}, not the one that was read out; "
                "do not use it, and ask the coordinator for the invitation again"
            )
        notes = _code_in(folder / "job.toml", allow_model)
        _check_data(folder, party, out)
    lines = [
        f"{party}: the key stays in {out / 'identity'}; {out / 'party.toml'} says where your data lies, and stays too",
        f"root        {joined.root}",
        f"request     {joined.request}",
        f"Next: send {out / f'{party}.request.zip'} to the coordinator, and compare both fingerprints by telephone.",
        f"What comes back: veracausa federation join {out} --signed {party}.signed.zip",
        *notes,
    ]
    console.out.print("\n".join(lines), markup=False, soft_wrap=True)


def _accept(folder: Path, signed: Path) -> None:
    from veracausa.cli import console
    from veracausa.federation.members import read_network
    from veracausa.federation.membership import accept

    network = read_network(folder / "federation.toml")
    credentials = accept(folder, signed)
    name = credentials.common_name
    lines = [
        f"{name} is a member of {network.name}",
        f"certificate {credentials.fingerprint}",
        f"            valid until {credentials.expires:%Y-%m-%d}",
        f"Next: veracausa federation run {folder}",
    ]
    console.out.print("\n".join(lines), markup=False, soft_wrap=True)


def approve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder, made by `init`.")],
    request: Annotated[Path, typer.Argument(metavar="NAME.request.zip", help="What the member sent.")],
    fingerprint: Annotated[
        str | None, typer.Option("--fingerprint", metavar="HEX", help="The request's, as the member read it out.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask: the request came on a way that no one else can write to.")
    ] = False,
    days: Annotated[int, typer.Option("--days", min=1, help="How long the certificate is valid.")] = 90,
    replace: Annotated[
        bool, typer.Option("--replace", help="The member has a new key; the old one is revoked here.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Default: NAME.signed.zip in the folder.")
    ] = None,
) -> None:
    """Sign a member's request, after its fingerprint was compared. What goes back holds nothing secret."""
    from veracausa.cli import console
    from veracausa.federation import membership
    from veracausa.federation.identity import need_flare

    need_flare()
    asked = membership.read_request(folder, request)
    member = asked.note.member
    console.out.print(f"{member} asks for a certificate\nrequest     {asked.fingerprint}", markup=False, soft_wrap=True)
    if fingerprint is not None:
        if not membership.same_fingerprint(fingerprint, asked.fingerprint):
            raise InputError(f"{request}: its fingerprint is another one than {member} read out; do not sign it")
    elif not yes:
        if not sys.stdin.isatty():
            raise InputError(f"{request}: compare its fingerprint with {member} and give it with --fingerprint")
        if not typer.confirm(f"Does {member} read out the same fingerprint?"):
            raise InputError(f"{request}: not signed; ask {member} for the request again")
    approval = membership.approve(folder, asked, out, days, replace)
    lines = [
        f"certificate {approval.fingerprint}",
        f"            valid until {approval.expires:%Y-%m-%d}",
        f"Next: send {approval.archive} to {member}, for `veracausa federation join FOLDER --signed FILE`.",
    ]
    if approval.revoked is not None:
        lines += _revoked_lines(approval.revoked.path, approval.revoked.sha256)
    console.out.print("\n".join(lines), markup=False, soft_wrap=True)


def revoke(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Your folder of the federation.")],
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME | FINGERPRINT | CERTIFICATE.pem",
            help="A member's name (where it was approved), fingerprints of its certificate and key, or the file.",
        ),
    ],
) -> None:
    """Let a certificate in no more: at this folder's port, and in its sessions with others, from the next seconds on.

    Each member keeps a list of its own. The one that serves and the one that must not be fooled both need the entry.
    """
    from veracausa.cli import console
    from veracausa.federation.membership import revoke as deny

    done = deny(folder, what)
    console.out.print("\n".join(_revoked_lines(done.path, done.sha256)), markup=False, soft_wrap=True)


def _revoked_lines(path: Path, sha256: tuple[str, ...]) -> list[str]:
    """What was revoked, and what the other members do about it."""
    fingerprints = " ".join(f'"{digits}"' for digits in sha256)
    return [
        f"{path}: these get in here no more, neither now nor later",
        *(f"revoked     {digits}" for digits in sha256),
        f"Next: every other member runs, in its own folder: veracausa federation revoke FOLDER {fingerprints}",
    ]
