"""`veracausa federation import`: a trained part in a folder from which it predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `veracausa federation export` wrote.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="The party's folder; it may have joined already.")
    ],
) -> None:
    """Lay a party's trained part into a folder, after it was checked. Nothing in the file is executed."""
    from veracausa.cli import console
    from veracausa.federation.handover import import_part

    manifest = import_part(file, out)
    console.out.print(f"{manifest.party} ({manifest.role}) -> {out}", markup=False, soft_wrap=True)
