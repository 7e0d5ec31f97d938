"""`veracausa predict`: joint inference with a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.console import err, print_json_line
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.training.predict import Predictions


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
    err.print(told(predictions, target), markup=False, soft_wrap=True)


def told(predictions: Predictions, target: Path) -> str:
    """Where the predictions are, and how good they are where the rows came with labels."""
    from veracausa.report.page import SCORES, format_score

    scores = [f"{SCORES.get(name, name)} {format_score(name, value)}" for name, value in predictions.scores.items()]
    return f"{len(predictions.ids)} rows -> {target}" + (f" ({', '.join(scores)})" if scores else "")


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
