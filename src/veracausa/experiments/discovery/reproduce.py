"""From an experiment on causal discovery to its tables, figure and page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veracausa.errors import InputError
from veracausa.experiments import table as plain
from veracausa.experiments.cells import Cells
from veracausa.experiments.discovery.cells import EMPTY, DiscoveryCell
from veracausa.experiments.discovery.experiment import PAPER, DiscoveryExperiment
from veracausa.experiments.discovery.graph_drawing import graph_drawing, often_found
from veracausa.experiments.discovery.table import LIMITED, DiscoveryTable, gather, records, shown
from veracausa.experiments.figures import Drawing, drawings_of
from veracausa.experiments.page import markdown, write_pages
from veracausa.experiments.schedule import CellWorkers, Progress, Tell, run_cells
from veracausa.registry import did_you_mean
from veracausa.runs.atomic import atomic_write


@dataclass(frozen=True)
class DiscoveryReproduction:
    """One experiment on causal discovery: where it is written, and what came of it."""

    experiment: DiscoveryExperiment
    out: Path
    progress: Progress
    tables: list[DiscoveryTable]
    texts: list[dict[str, Any]]
    """The tables as they are shown: `label`, `head` and `body`."""


def reproduce_discovery(
    experiment: DiscoveryExperiment,
    out: Path,
    store: Cells,
    workers: CellWorkers,
    panels: Sequence[str],
    until: float | None,
    overrides: Sequence[str],
    tell: Tell,
) -> DiscoveryReproduction:
    """Run what is missing of the experiment, and write it into `out`."""
    if overrides:
        raise InputError(
            f"{experiment.name}: --set lays settings over a job, and this has none; "
            "write a file that extends it and change its methods"
        )
    for panel in panels:
        if panel not in experiment.panels:
            raise InputError(f"{experiment.name}: no panel is named {panel!r}{did_you_mean(panel, experiment.panels)}")
    if panels:
        experiment = experiment.model_copy(update={"show": tuple(panels)})
    wanted = [cell for _, _, cells in experiment.places() for cell in cells]
    progress = run_cells(wanted, store, workers, until, tell)
    tables = gather(experiment, store, progress.reasons)
    texts = write_results(experiment, tables, wanted, store, progress, out)
    return DiscoveryReproduction(experiment, out, progress, tables, texts)


def write_results(
    experiment: DiscoveryExperiment,
    tables: Sequence[DiscoveryTable],
    wanted: Sequence[DiscoveryCell],
    store: Cells,
    progress: Progress,
    out: Path,
) -> list[dict[str, Any]]:
    """Tables, figure, page, settings and machine into `out`."""
    import tomli_w

    out.mkdir(parents=True, exist_ok=True)
    found = records(tables)
    atomic_write(out / "table.csv", plain.as_csv(found).encode())
    atomic_write(out / "table.parquet", plain.as_parquet(found))
    texts = [shown(experiment, table) for table in tables]
    for table in tables:
        if table.edges:
            head, *body = table.edges
            label = f"{table.label}: edges at {experiment.panels[table.name].effect}"
            texts.append({"label": label, "substitute": "", "head": head, "body": body, "guesses": 0})
    notes = footnotes(experiment, tables)
    atomic_write(out / "table.md", markdown(experiment, texts, notes, progress).encode())
    tree = json.loads(experiment.model_dump_json(exclude_none=True))
    atomic_write(out / "experiment.toml", tomli_w.dumps(tree).encode())
    places = [
        {"panel": panel, "row": row, "cells": [cell.key for cell in cells]} for panel, row, cells in experiment.places()
    ]
    atomic_write(out / "cells.json", (json.dumps(places, indent=1) + "\n").encode())
    machines = _machines(wanted, store)
    atomic_write(out / "environment.json", (json.dumps(machines, indent=2) + "\n").encode())
    write_pages(experiment, texts, _drawings(experiment, tables), notes, machines, progress, out, PAPER)
    return texts


def footnotes(experiment: DiscoveryExperiment, tables: Sequence[DiscoveryTable]) -> list[str]:
    """What a reader must know."""
    sources = [experiment.panels[panel] for panel in experiment.show]
    graphs = sorted({graph for source in sources for graph in source.graphs or experiment.graphs})
    seeds = ", ".join(map(str, experiment.seeds))
    notes = [
        "Mean over all fits ± spread over graphs / spread over seeds on one graph.",
        f"Graphs {', '.join(map(str, graphs))}; seeds {seeds}, of a method that draws nothing only the first.",
        "Seconds are those of the processor for one fit. VFedCD in one place trains all graphs and seeds of a panel "
        "side by side, and what that took is shared out.",
    ]
    if "shd" in experiment.columns:
        notes.append(
            "SHD counts a reversed edge once; less is better. What is not below the empty graph has found nothing."
        )
    limited = [line for table in tables for line in table.lines if line.limited]
    if limited:
        notes.append(
            f"{LIMITED}: stopped by the time limit of {experiment.time_limit:g} s a fit, with what it had then: "
            + ", ".join(dict.fromkeys(f"{line.label}" for line in limited))
            + "."
        )
    notes += list(experiment.footnotes)
    for table in tables:
        notes += [f"{table.label}: {note}." for note in table.notes]
    missing: Mapping[str, None] = dict.fromkeys(
        f"{line.label}: {line.why_not}" for table in tables for line in table.lines if line.why_not
    )
    notes += [f"–: {reason}." for reason in missing]
    return notes


def _drawings(experiment: DiscoveryExperiment, tables: Sequence[DiscoveryTable]) -> list[Drawing]:
    """Bars and lines, as for every other experiment; the bars' whiskers are the spread over graphs."""
    panels = []
    for table in tables:
        lines = [
            plain.Line(
                line.row,
                f"{line.label} {LIMITED}" if line.limited else line.label,
                line.at,
                {
                    column: plain.Value(score.mean, score.over_graphs, published=score.published)
                    for column, score in line.scores.items()
                },
            )
            for line in table.lines
            if line.fits
        ]
        panels.append(plain.PanelTable(table.name, table.label, table.substitute, lines, across=table.axis))
    drawings = drawings_of(experiment, panels)
    if any(figure.kind == "graph" for figure in experiment.figures):
        drawings += [
            graph_drawing(
                f"{line.label}, {table.label}",
                table.columns,
                often_found(table.runs[line.row]),
                experiment.panels[table.name].effect,
            )
            for table in tables
            for line in table.lines
            if line.fits and line.row != EMPTY and table.columns
        ]
    return drawings


def _machines(wanted: Sequence[DiscoveryCell], store: Cells) -> list[dict[str, Any]]:
    found = {}
    for cell in wanted:
        if result := store.result(cell):
            found[json.dumps(result["environment"], sort_keys=True)] = result["environment"]
    return list(found.values())
