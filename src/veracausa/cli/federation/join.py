"""`veracausa federation join`: a party makes its key at home, and later puts its signed certificate in place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.federation import own
from veracausa.errors import InputError


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
    data: own.Data = None,
    id: own.Id = None,
    columns: own.Columns = None,
    defense: own.Defense = None,
    settings: own.Settings = None,
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

    own_part = party_toml(party, data, id, own.names(columns), defense, settings or (), allow_model)
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
        notes = own.code_in(folder / "job.toml", allow_model)
        own.check_data(folder, party, out)
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
