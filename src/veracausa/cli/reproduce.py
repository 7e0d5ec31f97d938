"""`veracausa reproduce`: a published table or figure by one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veracausa.cli.interruption import GoOn, resumable
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.experiments.cell import Cell
    from veracausa.experiments.grid import Reproduction
    from veracausa.experiments.schedule import CellProgress

NOT_FINISHED = 3
"""The exit code when time was up: the same command goes on."""


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An experiment or its file; `all`; without one, a list.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            "--scale", help="smoke: bundled data; cpu (CausShield): an hour of it; small: a GPU; paper: as published."
        ),
    ] = "smoke",
    out: Annotated[Path | None, typer.Option("--out", help="Where to write; default: results/NAME/SCALE.")] = None,
    cells: Annotated[
        Path, typer.Option("--cells", help="Where trainings and attacks are kept, for all experiments together.")
    ] = Path("runs/cells"),
    panel: Annotated[
        list[str] | None, typer.Option("--panel", metavar="NAME", help="Only this data set of it; repeatable.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Cells at once; default: one on a GPU, else one a core.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", metavar="9m", help="Begin no cell after this; run it again to go on.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Lay one setting over every job; repeatable.")
    ] = None,
    index: Annotated[
        bool, typer.Option("--index", help="Run nothing: write each paper's index of what was run into results/.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print where the results are, as the last line.")] = False,
) -> None:
    """Run a published table or figure again, and set our numbers beside the paper's."""
    from veracausa.experiments.experiment import known_experiments, load_experiment

    if index:
        _write_indexes(name, as_json)
        return

    limit = _seconds(time_limit) if time_limit else None
    if name is None:
        _print_list()
        return
    names = list(known_experiments()) if name == "all" else [name]
    if name == "all" and out is not None:
        raise InputError("--out is for one experiment; `all` writes each into results/NAME/SCALE")
    for each in names:  # what is wrong in any file is said before torch is even imported
        load_experiment(each, scale)
    from veracausa.cli import console
    from veracausa.experiments.reproduce import reproduce_all
    from veracausa.experiments.schedule import deadline

    with resumable(GoOn(by_itself=True)):
        done = reproduce_all(
            names,
            scale,
            out,
            cells=cells,
            panels=panel or (),
            workers=workers,
            until=deadline(limit),
            overrides=settings or (),
            tell=_tell,
        )
    for found in () if as_json else done:
        _print(found, brief=len(names) > 1)
    if as_json:
        console.print_json_line(
            [
                {
                    "name": found.experiment.name,
                    "scale": scale,
                    "out": str(found.out),
                    "cells": found.progress.total,
                    "finished": found.progress.finished,
                    "failed": list(found.progress.failed.values()),
                }
                for found in done
            ]
        )
    _leave(done)


def _leave(done: Sequence[Reproduction]) -> None:
    from veracausa.cli import console

    failed = [message for found in done for message in found.progress.failed.values()]
    if any(found.progress.stopped for found in done):
        console.err.print("Time is up: the same command goes on from here.", markup=False)
        raise typer.Exit(NOT_FINISHED)
    if failed:
        from veracausa.errors import RunError

        raise RunError(f"{len(failed)} cells failed, the first with: {failed[0]}")


def _write_indexes(name: str | None, as_json: bool) -> None:
    from veracausa.cli import console
    from veracausa.experiments.index import write_indexes

    if name is not None:
        raise InputError("--index is of all papers and runs nothing; leave out the name of the experiment")
    written = [str(path) for path in write_indexes()]
    if as_json:
        console.print_json_line(written)
    for path in () if as_json else written:
        console.out.print(path, markup=False, soft_wrap=True)


def _print_list() -> None:
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.experiments.experiment import SCALES, known_experiments, load_experiment

    table = Table("experiment", "shows", box=None, pad_edge=False)
    for name in known_experiments():
        experiment = load_experiment(name, SCALES[0])
        table.add_row(name, f"{experiment.item}: {experiment.title}")
    console.out.print(table)
    console.out.print(f"\nveracausa reproduce NAME --scale {'|'.join(SCALES)}", markup=False, soft_wrap=True)


def _print(found: Reproduction, brief: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.experiments.page import state_of

    for shown in () if brief else found.texts:
        table = Table(title=escape(shown.label), title_justify="left", box=None, pad_edge=False)
        for number, title in enumerate(shown.head):
            table.add_column(escape(title), justify="right" if number else "left", no_wrap=not number)
        for texts in shown.body:
            table.add_row(*map(escape, texts))
        # A narrow terminal wraps long lines; cut numbers would be worse.
        Console(highlight=False, width=max(console.out.width, 220)).print(table)
    if state := state_of(found.progress):
        console.out.print(state, markup=False, soft_wrap=True)
    console.out.print(f"Report: {found.out / 'report.html'}", markup=False, soft_wrap=True)


def _tell(cell: Cell, seconds: float, progress: CellProgress) -> None:
    """A line for every cell that is finished."""
    from veracausa.cli import console

    about = cell.about
    problem = progress.reasons.get(cell.key)
    ended = f"not done: {problem}" if problem else f"{seconds:.1f} s"
    console.news.print(f"[{progress.finished}/{progress.total}] {about}: {ended}", markup=False, soft_wrap=True)


def _seconds(text: str) -> float:
    """`90`, `90s`, `9m` or `2h` in seconds."""
    from veracausa.experiments.schedule import read_seconds

    seconds = read_seconds(text if text[-1:].isalpha() else f"{text.strip()}s")
    if seconds is None:
        raise InputError(f"--time-limit {text}: write it as 90s, 9m or 2h")
    return seconds
