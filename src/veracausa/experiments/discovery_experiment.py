"""Experiments on causal discovery: their grid, means and spreads of what their cells found, edges, footnotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from veracausa.errors import InputError
from veracausa.experiments.cell import CellStore
from veracausa.experiments.discovery_grid import discovery_places, row_cells
from veracausa.experiments.discovery_overview import overview_tables
from veracausa.experiments.earlier import EarlierResults
from veracausa.experiments.experiment import EMPTY, DiscoveryExperiment
from veracausa.experiments.figures import Drawing, drawings_of
from veracausa.experiments.grid import Reproduction
from veracausa.experiments.pictures import graph_drawing, often_found
from veracausa.experiments.table import EARLIER, LIMITED, SECONDS, Fits, Line, PanelTable, TextTable, Value

NAMED = 3
"""A note that is true of more data sets than this is not told of each."""
FitRecord = Mapping[str, Any]
"""One fit, as a cell keeps it: `graph`, `seed`, `seconds`, `limited`, `scores`, `edges`."""


@dataclass
class DiscoveryReproduction(Reproduction):
    """An experiment on causal discovery."""

    experiment: DiscoveryExperiment
    runs: dict[str, dict[str, list[FitRecord]]] = field(default_factory=dict)
    """Panel -> row -> its fits."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """Panel -> the columns of its data."""
    sortability: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Panel -> that of its data, mean over graphs."""

    @classmethod
    def begin(cls, experiment: DiscoveryExperiment, out: Path, overrides: Sequence[str] = ()) -> DiscoveryReproduction:
        if overrides:
            raise InputError(
                f"{experiment.name}: --set lays settings over a job, and this has none; "
                "write a file that extends it and change its methods"
            )
        return cls(experiment, out, list(discovery_places(experiment)))

    def gather(self, store: CellStore, why_not: Mapping[str, str]) -> None:
        earlier = EarlierResults.read(self.out)
        self.tables = [self._panel(panel, store, why_not, earlier) for panel in self.experiment.show]

    def _panel(self, panel: str, store: CellStore, why_not: Mapping[str, str], earlier: EarlierResults) -> PanelTable:
        experiment, source = self.experiment, self.experiment.panels[panel]
        table = PanelTable(panel, experiment.label_of(panel), experiment.substituted(panel), across=source.axis)
        self.runs[panel] = {}
        for row in experiment.rows_of(panel):
            cells = row_cells(experiment, panel, row)
            results = [result for cell in cells if (result := cell.result(store))]
            runs = self.runs[panel][row] = [run for result in results for run in result["runs"]]
            wanted = sum(len(cell.graphs) * len(cell.seeds) for cell in cells)
            reason = next((why_not[cell.key] for cell in cells if cell.key in why_not), "")
            values = {
                column: value_of(column, runs, experiment.published_at(panel, row, column))
                for column in dict.fromkeys([*experiment.columns, *experiment.overview, SECONDS])
            }
            fits, method = Fits(len(runs), wanted, sum(run["limited"] for run in runs)), experiment.methods[row]
            kept = earlier.line(panel, row, frozenset(cell.key for cell in cells))
            if kept is not None and kept.fits > len(runs):
                # Of what was measured elsewhere only means and spreads are known, so it stands whole or not at all.
                values = {column: kept.value(column, value.published) for column, value in values.items()}
                fits, reason = Fits(kept.fits, wanted, kept.limited, earlier=True), ""
                missing = len(cells) - len(results)
                self.kept_cells += missing if kept.fits >= wanted else min(missing, kept.fits - len(runs))
                self.earlier_machines = earlier.machines
            table.lines.append(Line(row, method.label, method.at, values, fits, reason))
            for result in results:
                table.notes += [note for note in result["notes"] if note not in table.notes]
            if row == EMPTY and results:
                self.sortability[panel] = mean_sortability(results[0]["sortability"])
                table.remark = _sortability_text(self.sortability[panel])
                self.columns[panel] = results[0]["columns"]
                # What a generator did is in its settings, and the notes are those of one graph.
                if source.data["name"] not in ("synthetic", "suite") and len(source.graphs or experiment.graphs) == 1:
                    table.notes = [*results[0]["data_notes"], *table.notes]
        return table

    @property
    def keys(self) -> list[dict[str, Any]]:
        return [
            {"panel": place.panel, "row": place.row, "cells": [cell.key for cell in place.cells.values()]}
            for place in self.places
        ]

    @property
    def texts(self) -> list[TextTable]:
        """Overviews, the tables, and where no truth is known the edges at the column that matters."""
        edges = (self._edges(panel) for panel in self.experiment.show)
        overviews = overview_tables(self.experiment, self.tables, self.sortability)
        return [*overviews, *super().texts, *(table for table in edges if table is not None)]

    def _edges(self, panel: str) -> TextTable | None:
        """How often each method found the edges at the column that matters, and whether the paper names them."""
        experiment, found = self.experiment, self.runs[panel]
        effect, named = experiment.panels[panel].effect, experiment.published_edges.get(panel, ())
        rows = [row for row in found if row != EMPTY and found[row]]
        counts: dict[tuple[str, str], dict[str, int]] = {edge: {} for edge in named}
        for row in rows:
            for run in found[row]:
                for cause, end in run["edges"]:
                    if effect in (cause, end):
                        of_edge = counts.setdefault((cause, end), {})
                        of_edge[row] = of_edge.get(row, 0) + 1
        if not effect or not counts:
            return None
        body = [
            [
                f"{cause} → {end}",
                "yes" if (cause, end) in named else "",
                *(f"{counts[cause, end].get(row, 0)} of {len(found[row])}" for row in rows),
            ]
            for cause, end in sorted(counts, key=lambda edge: (-sum(counts[edge].values()), edge))
        ]
        head = ["edge", "in the paper", *(experiment.methods[row].label for row in rows)]
        return TextTable(f"{experiment.label_of(panel)}: edges at {effect}", head, body)

    def footnotes(self) -> list[str]:
        experiment, tables = self.experiment, self.tables
        sources = [experiment.panels[panel] for panel in experiment.show]
        graphs = sorted({graph for source in sources for graph in source.graphs or experiment.graphs})
        seeds = ", ".join(map(str, experiment.seeds))
        notes = [
            "Mean over all fits ± spread over graphs / spread over seeds on one graph.",
            f"Graphs {', '.join(map(str, graphs))}; seeds {seeds}, of a method that draws nothing only the first.",
            "Seconds are those of the processor for one fit. VFedCD in one place trains all graphs and seeds of a "
            "panel side by side, and what that took is shared out.",
        ]
        if "shd" in experiment.columns:
            notes.append(
                "SHD counts a reversed edge once; less is better. What is not below the empty graph has found nothing."
            )
        lines = [line for table in tables for line in table.lines]
        if limited := dict.fromkeys(line.label for line in lines if line.fits and line.fits.limited):
            notes.append(
                f"{LIMITED}: stopped by the time limit of {experiment.time_limit:g} s a fit, with what it had then: "
                f"{', '.join(limited)}."
            )
        if any(line.fits and line.fits.earlier for line in lines):
            notes.append(f"{EARLIER}: of an earlier run with the same settings, not run again with the others.")
        notes += list(experiment.footnotes)
        told: dict[str, list[str]] = {}
        for table in tables:
            for note in table.notes:
                told.setdefault(note, []).append(table.label)
        for note, labels in told.items():
            notes.append(f"{', '.join(labels) if len(labels) <= NAMED else f'{len(labels)} data sets'}: {note}.")
        missing = dict.fromkeys(f"{line.label}: {line.why_not}" for line in lines if line.why_not)
        return [*notes, *(f"–: {reason}." for reason in missing)]

    def drawings(self, store: CellStore) -> list[Drawing]:
        """Charts of the methods that have fits, their whiskers the spread over graphs, and the graphs they found."""
        fitted = [
            PanelTable(
                table.name,
                table.label,
                table.substitute,
                [line for line in table.lines if line.fits and line.fits.finished],
                across=table.across,
            )
            for table in self.tables
        ]
        drawings = drawings_of(self.experiment.figures, fitted)
        if not any(figure.kind == "graph" for figure in self.experiment.figures):
            return drawings
        for table in fitted:
            effect = self.experiment.panels[table.name].effect
            for line in table.lines:
                if line.row != EMPTY and (columns := self.columns.get(table.name)):
                    edges = often_found(self.runs[table.name][line.row])
                    drawings.append(graph_drawing(f"{line.label}, {table.label}", columns, edges, effect))
        return drawings


def value_of(column: str, runs: Sequence[FitRecord], published: tuple[float, float | None] | None = None) -> Value:
    """The mean over fits; the spread of the graphs' means; the mean of the seeds' spreads on one graph."""
    by_graph: dict[int, list[float]] = {}
    for run in runs:
        value = run[SECONDS] if column == SECONDS else run["scores"].get(column)
        if value is not None:
            by_graph.setdefault(run["graph"], []).append(float(value))
    if not by_graph:
        return Value(None, published=published)
    means = [fmean(values) for values in by_graph.values()]
    spreads = [stdev(values) for values in by_graph.values() if len(values) > 1]
    return Value(
        fmean(value for values in by_graph.values() for value in values),
        (stdev(means) if len(means) > 1 else None, fmean(spreads) if spreads else None),
        published=published,
    )


def mean_sortability(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over the graphs whose truth is known and has edges."""
    known = [each for each in found if each]
    return {name: fmean(each[name] for each in known) for name in known[0]} if known else {}


def _sortability_text(mean: Mapping[str, float]) -> str:
    if not mean:
        return ""
    variance = f"{mean['variance']:.2f} by variance"
    if "raw variance" in mean:
        variance = f"{mean['raw variance']:.2f} by variance as generated, {mean['variance']:.2f} standardised"
    return (
        f"Sortability of the data, mean over graphs: {variance}, {mean['r2']:.2f} by R². At 0.5 such an order says "
        "nothing about causes; of standardised columns only chance is left in it."
    )
