"""What a reproduction leaves behind: tables for people and for machines, a figure, a page, settings and machine."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from veracausa.atomic import atomic_write
from veracausa.experiments.cell import CellStore
from veracausa.experiments.figures import write_figure
from veracausa.experiments.grid import Reproduction
from veracausa.experiments.schedule import CellProgress
from veracausa.experiments.table import as_csv, as_parquet, markdown_table
from veracausa.report.page import NextStep, PageOpening, render, write_page


def write_results(found: Reproduction, store: CellStore) -> None:
    """Write everything into `found.out`; what is there already is replaced."""
    import tomli_w

    out, experiment = found.out, found.experiment
    out.mkdir(parents=True, exist_ok=True)
    notes, machines, drawings = found.footnotes(), found.machines(store), found.drawings(store)
    atomic_write(out / "table.csv", as_csv(found.records))
    atomic_write(out / "table.parquet", as_parquet(found.records))
    atomic_write(out / "table.md", markdown(found, notes).encode())
    settings = json.loads(experiment.model_dump_json(exclude_none=True))
    atomic_write(out / "experiment.toml", tomli_w.dumps(settings).encode())
    _write_json(out / "cells.json", found.keys, 1)
    _write_json(out / "environment.json", machines, 2)
    for name, job in found.jobs.items():
        (out / "configs").mkdir(exist_ok=True)
        atomic_write(out / "configs" / f"{name}.toml", job.to_toml().encode())
    if drawings:
        svg, png = write_figure(drawings)
        atomic_write(out / "figure.svg", svg)
        atomic_write(out / "figure.png", png)
    page = render(
        "reproduction.html.j2",
        experiment=experiment,
        opening=_opening(found),
        has_jobs=bool(found.jobs),
        state=state_of(found.progress),
        drawings=[(drawing.title, Markup(drawing.svg())) for drawing in drawings],
        tables=found.texts,
        footnotes=notes,
        machines=machines,
    )
    write_page(out / "report.html", page)


def _opening(found: Reproduction) -> PageOpening:
    """How much of it was run, at which scale, and the next one."""
    experiment, finished, total = found.experiment, found.progress.finished, found.progress.total
    done = f"all {total} cells are finished" if finished == total else f"{finished} of {total} cells are finished"
    larger = {"smoke": "small", "small": "paper"}.get(experiment.scale)
    command = f"veracausa reproduce {experiment.name} --scale"
    steps = [NextStep("Run it at the next scale.", f"{command} {larger}")] if larger else []
    if finished < total:
        steps.insert(0, NextStep("Finish it.", f"{command} {experiment.scale}"))
    return PageOpening(f"{experiment.title}: {done}.", [experiment.scale_text], steps)


def markdown(found: Reproduction, notes: list[str]) -> str:
    """The tables and their footnotes for a reader of text."""
    experiment = found.experiment
    lines = [f"# {experiment.item}: {experiment.title}", "", experiment.scale_text, ""]
    if state := state_of(found.progress):
        lines += [state, ""]
    for table in found.texts:
        lines += [f"## {table.label}", ""]
        if table.note:
            lines += [table.note, ""]
        lines += [*markdown_table(table.head, table.body), ""]
    lines += [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join(lines).rstrip() + "\n"


def state_of(progress: CellProgress) -> str:
    """How much is there, where not everything is."""
    left = progress.total - progress.finished
    if not left:
        return ""
    said = [f"{progress.finished} of {progress.total} cells are finished"]
    if progress.failed:
        said.append(f"{len(progress.failed)} failed")
    if progress.unfit:
        said.append(f"{len(progress.unfit)} cannot be run")
    return f"{', '.join(said)}."


def _write_json(path: Any, value: Any, indent: int) -> None:
    atomic_write(path, (json.dumps(value, indent=indent) + "\n").encode())
