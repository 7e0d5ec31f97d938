"""`veracausa predict`: joint inference with a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.console import err, print_json_line
from veracausa.errors import InputError


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(help="New rows: one file for all parties, or PARTY=FILE for each; none: the run's test rows."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; default: RUN/predictions.csv.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write ids as they are, also where a spreadsheet would run one as a formula.")
    ] = False,
    allow_model: AllowModel = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as the last line.")] = False,
) -> None:
    """Predict new rows jointly: every party runs its own saved model on its own columns."""
    sources = _sources(data or [])
    from veracausa.runs.folder import Run

    trained = Run(run, allow_model)
    target = out or trained.path / "predictions.csv"
    predictions = trained.predict(sources, target, raw)
    summary = {"rows": len(predictions.ids), "predictions": str(target), **predictions.scores}
    if as_json:
        print_json_line(summary)
        return
    scores = ", ".join(f"{name} {value:.4f}" for name, value in predictions.scores.items())
    told = f"{len(predictions.ids)} rows -> {target}" + (f" ({scores})" if scores else "")
    err.print(told, markup=False, soft_wrap=True)


def _sources(data: list[str]) -> Path | dict[str, Path] | None:
    if not data:
        return None
    named: dict[str, Path] = {}
    for party, _, file in (item.partition("=") for item in data if "=" in item):
        if party in named:
            raise InputError(f"{party}={file}: {party!r} has a file already; give one file a party")
        named[party] = Path(file)
    if named and len(named) == len(data):
        return named
    if len(data) == 1:
        return Path(data[0])
    raise InputError("predict: give one file for all parties, or PARTY=FILE for each of them")
