"""`veracausa federation serve`: relay what members send each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.events import Event


def serve(
    folder: Annotated[Path, typer.Argument(help="The serving member's folder of this federation.")],
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The port to open, where a firewall forwards the agreed address to it.",
        ),
    ] = None,
) -> None:
    """Open the port that the others dial, and relay between them until stopped. Takes no part in the job itself.

    What is relayed is encrypted between its two ends: this member can see who talks to whom and how much, not what.
    """

    from veracausa.cli import console
    from veracausa.federation.session_attempt import Site
    from veracausa.federation.session_attempt import serve as relay

    site = Site.read(folder, listen)

    if notice := site.credentials.expires_soon():
        console.err.print(f"note: {notice}", markup=False, soft_wrap=True)

    def tell(event: Event) -> None:
        match event["event"]:
            case "serves":  # the port is open
                opened = event["at"] if listen is None else f"{event['at']} (open here: {listen})"
                line = f"{site.me} serves {site.network.name} at {opened}; stop with Ctrl-C"
            case "came":
                line = f"{event['member']} is here"
            case _:
                line = f"{event['member']} has left"
        console.out.print(line, markup=False, soft_wrap=True)

    try:
        relay(site, tell)
    except KeyboardInterrupt:
        console.out.print("stopped", markup=False)
