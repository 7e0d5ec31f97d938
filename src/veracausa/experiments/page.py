"""What a reproduction leaves behind: tables for people and for machines, a figure, a page, settings and machine."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from veracausa.experiments.cell import CellStore
from veracausa.experiments.figures import write_figure
from veracausa.experiments.grid import Reproduction
from veracausa.experiments.schedule import CellProgress
from veracausa.experiments.table import as_csv, as_parquet, markdown_table
from veracausa.report.run_page import render, write_page
from veracausa.attacks import attack_title
from veracausa.experiments.attacked import sentence
from veracausa.experiments.cells import Cells
from veracausa.experiments.discovery.experiment import DiscoveryExperiment
from veracausa.experiments.experiment import COSINE, Experiment
from veracausa.experiments.figures import Drawing, drawings_of, write_figure
from veracausa.experiments.gallery import galleries
from veracausa.experiments.plan import GridPoint
from veracausa.experiments.schedule import Progress
from veracausa.experiments.table import (
    NOT_WORKING,
    PanelTable,
    as_csv,
    as_parquet,
    body,
    compared,
    head,
    records,
)
from veracausa.report.page import render, write_page
from veracausa.runs.atomic import atomic_write


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
        has_jobs=bool(found.jobs),
        state=state_of(found.progress),
        drawings=[(drawing.title, Markup(drawing.svg())) for drawing in drawings],
        tables=found.texts,
        footnotes=notes,
        machines=machines,
    )
    write_page(out / "report.html", page)


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


def footnotes(experiment: Experiment, tables: Sequence[PanelTable], progress: Progress) -> list[str]:
    """What a reader must know: how to read the numbers, what failed, what is odd in the paper."""
    values = [value for table in tables for line in table.lines for value in line.values.values()]
    most = max((value.seeds for value in values), default=0)
    counted = "± is the spread over seeds" if most > 1 else "One seed"
    notes = [f"{counted}; the spread over images is another number, in table.csv."]
    notes += _fewer_seeds(experiment, tables)
    if any(name != COSINE for name in experiment.attacks_used):
        notes.append(
            "Leakage: 0 % is no better than the best guess without the payload, 100 % a perfect copy. The rows `no "
            "payload` are such guesses."
        )
    for attack in dict.fromkeys(attack for table in tables for attack in table.attacked):
        every = [one for table in tables for one in table.attacked.get(attack, ())]
        notes.append(sentence(attack_title(attack), every))
    if any(column.startswith("inverse.") for column in experiment.columns):
        notes.append(
            "The oracle decoder is not in the paper: it is trained on what the victim's own model and defense send, "
            "told the labels, and bounds what attackers read that decode alike and know less."
        )
    failing = sorted(
        {
            attack_title(column.partition(".")[0])
            for table in tables
            for line in table.lines
            for column, value in line.values.items()
            if value.works is False
        }
    )
    if failing:
        notes.append(
            f"{NOT_WORKING} not working here: {' and '.join(failing)} does not beat the blind guess in every seed "
            "where nothing is defended either, so these numbers say nothing about a defense."
        )
    if any(compared(table, experiment.columns) for table in tables):
        notes.append("Of the paper only printed numbers are here, not what it draws. In the figure they are hollow.")
    notes += list(experiment.footnotes)
    for table in tables:
        notes += [f"{table.label}: {note}." for note in table.notes]
        if table.substitute and experiment.published.get(table.name) and not experiment.substitute:
            notes.append(f"{table.label}: the data are not the paper's, so its numbers are left out.")
    missing = dict.fromkeys(value.why_not for value in values if value.mean is None and value.why_not)
    notes += [f"–: {reason}." for reason in missing if reason != "not run yet"]
    if "not run yet" in missing and not progress.stopped:
        notes.append("–: not run.")
    return notes


def _fewer_seeds(experiment: Experiment, tables: Sequence[PanelTable]) -> list[str]:
    """Which rows have numbers of fewer seeds than the experiment asks for: without ± one looks like a choice."""
    fewest: dict[tuple[str, int], int] = {}
    for table in tables:
        for line in table.lines:
            asked = experiment.seeds_of.get(line.row, experiment.seeds)
            run = min((value.seeds for value in line.values.values() if value.seeds), default=asked)
            if run < asked:
                row = f"{table.label}: {line.label}" if len(tables) > 1 else line.label
                fewest[row, asked] = min(run, fewest.get((row, asked), run))
    rows = "; ".join(f"{row}, {run} of {asked}" for (row, asked), run in fewest.items())
    return [f"Not all seeds are run: {rows}."] if rows else []


def state_of(progress: Progress) -> str:
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
