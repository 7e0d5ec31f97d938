"""`veracausa federation approve`: the coordinator signs a member's request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.federation.revoke import revoked_lines
from veracausa.errors import InputError


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
    from veracausa.federation import membership as provision
    from veracausa.federation.identity import need_flare

    need_flare()
    asked = provision.read_request(folder, request)
    member = asked.note.member
    console.out.print(f"{member} asks for a certificate\nrequest     {asked.fingerprint}", markup=False, soft_wrap=True)
    if fingerprint is not None:
        if not provision.same_fingerprint(fingerprint, asked.fingerprint):
            raise InputError(f"{request}: its fingerprint is another one than {member} read out; do not sign it")
    elif not yes:
        if not sys.stdin.isatty():
            raise InputError(f"{request}: compare its fingerprint with {member} and give it with --fingerprint")
        if not typer.confirm(f"Does {member} read out the same fingerprint?"):
            raise InputError(f"{request}: not signed; ask {member} for the request again")
    approval = provision.approve(folder, asked, out, days, replace)
    lines = [
        f"certificate {approval.fingerprint}",
        f"            valid until {approval.expires:%Y-%m-%d}",
        f"Next: send {approval.parcel} to {member}, for `veracausa federation join FOLDER --signed FILE`.",
    ]
    if approval.revoked is not None:
        lines += revoked_lines(approval.revoked.path, approval.revoked.sha256)
    console.out.print("\n".join(lines), markup=False, soft_wrap=True)
