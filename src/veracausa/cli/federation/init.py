"""`veracausa federation init`: the coordinator writes down who takes part, and makes the invitation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.federation import own
from veracausa.errors import InputError


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
    data: own.Data = None,
    id: own.Id = None,
    columns: own.Columns = None,
    defense: own.Defense = None,
    settings: own.Settings = None,
    allow_model: AllowModel = None,
) -> None:
    """Found a federation: its members, its job and its root, and an invitation that holds nothing secret."""
    from veracausa.cli import console
    from veracausa.federation import membership as joining
    from veracausa.federation import membership as provision
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
    parties = provision.parties_of(job)
    network = provision.describe(name or _name_of(job), parties, server, member or (), scheme.value, route.value)
    network = network.model_copy(update={"wire": wire_limits(wire or ())})
    if as_member is not None and as_member not in network.members:
        raise InputError(f"--as {as_member}: is no member of {network.name} ({', '.join(network.members)})")
    text = party_toml(as_member or "", data, id, own.names(columns), defense, settings or (), allow_model)
    notes = own.code_in(job, allow_model)
    with new_folder(out) as folder:
        authority = provision.found(folder, network, job, days)
        if as_member is not None:
            (folder / "party.toml").write_text(text, encoding="utf-8")
            joining.lay_root(folder, authority.root.read_bytes())
            own.check_data(folder, as_member, out)
            joining.ask(folder, as_member)
            request = provision.read_request(folder, folder / f"{as_member}.request.zip")
            joining.accept(folder, provision.approve(folder, request, days=member_days).parcel)
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
    import tomllib

    return str(tomllib.loads(job.read_text(encoding="utf-8")).get("name", "federation"))


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
