"""`veracausa federation import`: a trained part in a folder from which it predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `veracausa federation export` wrote.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="The party's folder; it may have joined already.")
    ],
    allow_model: AllowModel = None,
) -> None:
    """Lay a party's trained part into a folder, after it was checked. Nothing in the file is executed.

    A part whose model is code needs --allow-model: the file only names the code, and that alone runs nothing.
    """
    from veracausa.cli import console
    from veracausa.federation.export_import import import_part

    manifest = import_part(file, out, allow_model)
    console.out.print(f"{manifest.party} ({manifest.role}) -> {out}", markup=False, soft_wrap=True)
