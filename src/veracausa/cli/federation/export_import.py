"""`veracausa federation export` and `import`: a party's trained part as a file, and back in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="This party's folder of the federation.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write, such as bank.part.zip.")],
    party: Annotated[
        str | None, typer.Option("--party", metavar="NAME", help="Whose it is; default: by the certificate.")
    ] = None,
) -> None:
    """Write this party's trained part to a file: weights and preprocessing, for itself and not for its partners."""
    from veracausa.cli import console
    from veracausa.federation.export_import import export as write
    from veracausa.wire.credentials import Credentials

    me = party or Credentials.of_folder(folder).common_name
    manifest = write(folder, me, out)
    size = sum(file.bytes for file in manifest.files.values())
    console.out.print(f"{manifest.party} ({manifest.role}): {size:,} bytes -> {out}", markup=False, soft_wrap=True)


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
