"""`veracausa export`: the trained parts of a split run as ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of split training.")],
    out: Annotated[Path | None, typer.Option(help="The folder to write into; default: RUN/onnx.")] = None,
    allow_model: AllowModel = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as the last line.")] = False,
) -> None:
    """Write each party's part of a trained model as ONNX, and check its numbers.

    A bottom model goes into a folder of its own party, the top model into the active party's. Blind training, and
    defenses that change what leaves a party, are refused.
    """
    from veracausa.cli import console
    from veracausa.runs.folder import Run
    from veracausa.training.export import export_run

    trained = Run(run, allow_model)
    parts = export_run(trained, out or trained.path / "onnx")
    if as_json:
        console.print_json_line(
            {"parts": [{"party": p.party, "path": str(p.path), "difference": p.difference} for p in parts]}
        )
        return
    for part in parts:
        console.out.print(f"{part.party}: {part.path} (checked: off by {part.difference:.1g})", markup=False)
