"""`veracausa report`: write a run's page again, or compare several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.errors import InputError


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Run folders: one for its report, more to compare.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the page of a comparison; default: comparison.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the key numbers as one line of JSON.")] = False,
) -> None:
    """Write the report of a run, or one page that compares several."""
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.runs.compare import compare, write_comparison
    from veracausa.runs.figures import SCORES, format_bytes, format_score
    from veracausa.runs.report import format_seconds, write_report

    if len(runs) == 1:
        if out is not None:
            raise InputError("--out is for a comparison of several runs; one run's report goes into its own folder")
        page = write_report(runs[0])
    else:
        page = write_comparison(runs, out or Path("comparison.html"))
    rows = compare(runs)
    scores = [score for score in SCORES if any(score in row["test"] for row in rows)]
    table = Table("run", "state", "data", "model", "cut", "defense", box=None, pad_edge=False)
    for name in (*(SCORES[score] for score in scores), "time", "rounds", "bytes"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["name"],
            row["state"],
            row["data"],
            row["model"],
            "" if row["cut"] is None else str(row["cut"]),
            row["defense"],
            *(format_score(score, row["test"][score]) if score in row["test"] else "" for score in scores),
            "" if row["seconds"] is None else format_seconds(row["seconds"]),
            "" if row["rounds"] is None else f"{row['rounds']:,}",
            format_bytes(row["bytes_sent"]),
        )
    if as_json:
        console.print_json_line({"report": str(page), "runs": rows})
        return
    console.out.print(table)
    console.out.print(f"\nReport: {page}", markup=False, soft_wrap=True)
