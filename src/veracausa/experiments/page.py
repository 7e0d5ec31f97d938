"""What a reproduction leaves behind: tables for people and for machines, a figure, a page, settings and machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

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
from veracausa.report.run_page import render, write_page
from veracausa.runs.atomic import atomic_write

OF_SCALE = {
    "smoke": "Scale smoke: a minute on a CPU with bundled data, to see that everything runs. Its numbers mean nothing.",
    "small": "Scale small: the paper's comparison with less data and a shorter training; see the settings.",
    "paper": "Scale paper: the published setting, as far as it is published.",
}
AnyExperiment = Experiment | DiscoveryExperiment
PAPER = "CausShield (Jiang, Gao, Chen, Fu, 2026)"


def write_results(
    experiment: Experiment,
    grid: Sequence[GridPoint],
    tables: Sequence[PanelTable],
    cells: Cells,
    progress: Progress,
    out: Path,
) -> None:
    """Write everything into `out`; what is there already is replaced."""
    out.mkdir(parents=True, exist_ok=True)
    drawings = drawings_of(experiment, tables)
    if any(figure.kind == "pictures" for figure in experiment.figures):
        drawings += galleries(experiment, grid, cells)
    found = records(experiment, tables)
    atomic_write(out / "table.csv", as_csv(found).encode())
    atomic_write(out / "table.parquet", as_parquet(found))
    notes = footnotes(experiment, tables, progress)
    shown = [shown_texts(experiment, table) for table in tables]
    atomic_write(out / "table.md", markdown(experiment, shown, notes, progress).encode())
    write_settings(experiment, grid, out)
    machines = _machines(grid, cells)
    atomic_write(out / "environment.json", (json.dumps(machines, indent=2) + "\n").encode())
    write_pages(experiment, shown, drawings, notes, machines, progress, out)


def write_pages(
    experiment: AnyExperiment,
    shown: Sequence[dict[str, Any]],
    drawings: Sequence[Drawing],
    notes: Sequence[str],
    machines: Sequence[dict[str, Any]],
    progress: Progress,
    out: Path,
    paper: str = PAPER,
) -> None:
    """The figure as SVG and PNG, and the page that holds it all."""
    if drawings:
        svg, png = write_figure(drawings)
        atomic_write(out / "figure.svg", svg)
        atomic_write(out / "figure.png", png)
    page = render(
        "reproduction.html.j2",
        experiment=experiment,
        paper=paper,
        scale=scale_of(experiment),
        state=state_of(progress),
        drawings=[(drawing.title, Markup(drawing.svg())) for drawing in drawings],
        tables=shown,
        footnotes=notes,
        machines=machines,
    )
    write_page(out / "report.html", page)


def scale_of(experiment: AnyExperiment) -> str:
    """What a reader must know of the scale."""
    said = experiment.says if isinstance(experiment, DiscoveryExperiment) else ""
    return said or OF_SCALE.get(experiment.scale, f"Scale {experiment.scale}.")


def markdown(
    experiment: AnyExperiment, tables: Sequence[dict[str, Any]], notes: Sequence[str], progress: Progress
) -> str:
    """The tables and their footnotes for a reader of text."""
    lines = [f"# {experiment.item}: {experiment.title}", "", scale_of(experiment), ""]
    if state := state_of(progress):
        lines += [state, ""]
    for table in tables:
        lines += [f"## {table['label']}", ""]
        if table["substitute"]:
            lines += [table["substitute"], ""]
        lines += [_row(table["head"]), _row(["---"] * len(table["head"]))]
        lines += [_row(row) for row in table["body"]]
        lines.append("")
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


def write_settings(experiment: Experiment, grid: Sequence[GridPoint], out: Path) -> None:
    """The experiment as resolved, and the job of every row: each can be trained again on its own."""
    import tomli_w

    tree = json.loads(experiment.model_dump_json(exclude_none=True))
    atomic_write(out / "experiment.toml", tomli_w.dumps(tree).encode())
    folder = out / "configs"
    folder.mkdir(exist_ok=True)
    for point in grid:
        if point.seed == 0:
            name = "-".join([point.panel, point.row, *([f"{point.at:g}"] if point.at is not None else [])])
            job = point.training.job.model_copy(update={"name": name})
            atomic_write(folder / f"{name}.toml", job.to_toml().encode())
    places = [
        {
            "panel": point.panel,
            "row": point.row,
            "at": point.at,
            "seed": point.seed,
            "training": point.training.key,
            **{name: cell.key for name, cell in point.readings.items()},
        }
        for point in grid
    ]
    atomic_write(out / "cells.json", (json.dumps(places, indent=1) + "\n").encode())


def shown_texts(experiment: Experiment, table: PanelTable) -> dict[str, Any]:
    """The table as texts."""
    return {
        "label": table.label,
        "substitute": table.substitute,
        "head": head(experiment, table),
        "body": list(body(experiment, table)),
        "guesses": len(table.trivial),
    }


def _machines(grid: Sequence[GridPoint], cells: Cells) -> list[dict[str, Any]]:
    """The machines that the trainings ran on, each once."""
    found: dict[str, dict[str, Any]] = {}
    for point in grid:
        if result := cells.result(point.training):
            machine = {key: value for key, value in result.get("environment", {}).items() if key != "seed"}
            found[json.dumps(machine, sort_keys=True)] = machine
    return list(found.values())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', '/') for text in cells)} |"
