"""`veracausa report`: write a run's page again, or compare several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


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
    from veracausa.cli import console
    from veracausa.report.compare import compare
    from veracausa.report.report import report as write

    page = write(*runs, out=out)
    rows = compare(runs)
    if as_json:
        console.print_json_line({"report": str(page), "runs": rows})
        return
    if len(runs) == 1:
        _print_one(runs[0])
    else:
        _print_several(rows)
    console.out.print(f"\nReport: {page}", markup=False, soft_wrap=True)


def _print_one(path: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.report.blind_section import crossed_sentence
    from veracausa.report.defense_figures import defense_warnings
    from veracausa.report.run_page import headline, key_numbers, sent_rows
    from veracausa.runs.record import read_run

    run = read_run(path)
    if run.config.get("kind") == "discovery":
        from veracausa.cli.discover import print_discovery
        from veracausa.discovery.discover import DiscoveryRun

        print_discovery(DiscoveryRun(path))
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in key_numbers(run):
        table.add_row(name, escape(value))
    if run.protocol == "blind":
        console.say(crossed_sentence(run))
    console.say(headline(run))
    console.out.print(table)
    for line in (*sent_rows(run), *(f"note: {note}" for note in run.summary.get("notes") or ())):
        console.say(line)
    for warning in defense_warnings(run):
        console.say(warning)


def _print_several(rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.report.compare import READ
    from veracausa.report.page import SCORES, format_bytes, format_score, format_seconds

    # A terminal is narrow: only what differs, and the two scores that say most. The page has the rest.
    choices = [name for name in ("data", "protocol", "model", "cut") if len({row[name] for row in rows}) > 1]
    if "protocol" in choices:  # then model and cut differ anyway, and mean other things
        choices = [name for name in choices if name not in ("model", "cut")]
    choices += ["defense"] if len({row["defense"] or "none" for row in rows}) > 1 else []
    choices = [*(["state"] if {row["state"] for row in rows} != {"done"} else []), *choices]
    scores = [score for score in ("accuracy", "auc", "rmse", "mae") if any(score in row["test"] for row in rows)][:2]
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold", min_width=8)
    for name in choices:
        table.add_column(name, overflow="fold")
    audited = [name for name in READ if any(row[name] is not None for row in rows)]
    headings = [*(SCORES[score] for score in scores), *(name.removesuffix("_rows") for name in audited)]
    for name in (*headings, "time", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [row["name"], *("" if row[name] is None else str(row[name]) for name in choices)]
        cells += [format_score(score, row["test"][score]) if score in row["test"] else "" for score in scores]
        cells += ["–" if row[name] is None else f"{100 * row[name]:.0f} %" for name in audited]
        cells += ["" if row["seconds"] is None else format_seconds(row["seconds"]), format_bytes(row["bytes_sent"])]
        table.add_row(*map(escape, cells))
    console.out.print(table)
    if audited:
        console.say("training, predicted: the share of such a row that the strongest attack reads")
