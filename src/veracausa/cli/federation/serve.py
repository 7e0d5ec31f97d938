"""`veracausa federation serve`: relay what members send each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


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
    from collections.abc import Mapping

    from veracausa.cli import console
    from veracausa.federation.attempt import Site
    from veracausa.federation.attempt import serve as relay

    site = Site.read(folder, listen)

    def tell(event: Mapping[str, Any]) -> None:
        console.out.print(f"{event['member']} {'is here' if event['event'] == 'came' else 'has left'}", markup=False)

    console.out.print(
        f"{site.me} serves {site.network.name} at {site.network.members[site.me].address}; stop with Ctrl-C",
        markup=False,
    )
    try:
        relay(site, tell)
    except KeyboardInterrupt:
        console.out.print("stopped", markup=False)
