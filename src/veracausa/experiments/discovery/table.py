"""What the cells of an experiment on causal discovery add up to: means, both spreads, and the paper beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from veracausa.experiments.cells import Cells
from veracausa.experiments.discovery import audited
from veracausa.experiments.discovery.cells import EMPTY, DiscoveryCell
from veracausa.experiments.discovery.experiment import SECONDS, DiscoveryExperiment

NAMES = {
    "shd": "SHD",
    "shd_reversal_2": "SHD, reversal 2",
    "empty_graph_shd": "SHD of the empty graph",
    "f1": "F1",
    "skeleton_f1": "skeleton F1",
    "intra_party_f1": "F1 inside a party",
    "inter_party_f1": "F1 between parties",
    "edges": "edges",
    "true_edges": "true edges",
    SECONDS: "processor seconds a fit",
    **audited.NAMES,
}
FEW_DIGITS = ("shd", "shd_reversal_2", "empty_graph_shd", "edges", "true_edges", SECONDS)
LIMITED = "‡"


@dataclass(frozen=True)
class GraphScore:
    """One number of a table: the mean over all fits, how graphs differ, and how seeds differ on one graph."""

    mean: float | None
    over_graphs: float | None = None
    over_seeds: float | None = None
    published: tuple[float, float | None] | None = None


@dataclass(frozen=True)
class DiscoveryLine:
    """One method on one panel."""

    row: str
    label: str
    at: float | None
    scores: Mapping[str, GraphScore]
    fits: int
    wanted: int
    limited: int
    why_not: str = ""


@dataclass
class DiscoveryTable:
    """One panel as gathered."""

    name: str
    label: str
    substitute: str
    axis: str
    lines: list[DiscoveryLine] = field(default_factory=list)
    sortability: str = ""
    notes: list[str] = field(default_factory=list)
    edges: list[list[str]] = field(default_factory=list)
    """Where no truth is known: which edges the methods found, in how many fits."""
    columns: list[str] = field(default_factory=list)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Row -> its fits."""


def gather(experiment: DiscoveryExperiment, cells: Cells, why_not: Mapping[str, str]) -> list[DiscoveryTable]:
    """All panels with what is finished."""
    tables = []
    for panel in experiment.show:
        source = experiment.panels[panel]
        table = DiscoveryTable(panel, experiment.label_of(panel), experiment.substituted(panel), source.axis)
        for row in experiment.rows_of(panel):
            wanted = experiment.cells_of(panel, row)
            results = [result for cell in wanted if (result := cells.result(cell))]
            table.runs[row] = [run for result in results for run in result["runs"]]
            table.lines.append(_line(experiment, panel, row, wanted, table.runs[row], why_not))
            for result in results:
                table.notes += [note for note in result["notes"] if note not in table.notes]
            if row == EMPTY and results:
                table.sortability = _sortability(results[0]["sortability"])
                table.columns = results[0]["columns"]
                # What a generator did is in its settings, and the notes are those of one graph.
                if source.data["name"] != "synthetic" and len(source.graphs or experiment.graphs) == 1:
                    table.notes = [*results[0]["data_notes"], *table.notes]
        if source.effect:
            table.edges = _edges(experiment, panel, table.runs)
        tables.append(table)
    return tables


def _line(
    experiment: DiscoveryExperiment,
    panel: str,
    row: str,
    wanted: Sequence[DiscoveryCell],
    runs: Sequence[Mapping[str, Any]],
    why_not: Mapping[str, str],
) -> DiscoveryLine:
    method = experiment.methods[row]
    columns = dict.fromkeys([*experiment.columns, SECONDS])
    return DiscoveryLine(
        row,
        method.label,
        method.at,
        {column: score_of(column, runs, experiment.published_at(panel, row, column)) for column in columns},
        len(runs),
        sum(len(cell.graphs) * len(cell.seeds) for cell in wanted),
        sum(run["limited"] for run in runs),
        next((why_not[cell.key] for cell in wanted if cell.key in why_not), ""),
    )


def score_of(
    column: str, runs: Sequence[Mapping[str, Any]], published: tuple[float, float | None] | None = None
) -> GraphScore:
    """The mean over fits; the spread of the graphs' means; the mean of the seeds' spreads on one graph."""
    by_graph: dict[int, list[float]] = {}
    for run in runs:
        value = run[SECONDS] if column == SECONDS else run["scores"].get(column)
        if value is not None:
            by_graph.setdefault(run["graph"], []).append(float(value))
    if not by_graph:
        return GraphScore(None, published=published)
    means = [fmean(values) for values in by_graph.values()]
    spreads = [stdev(values) for values in by_graph.values() if len(values) > 1]
    return GraphScore(
        fmean(value for values in by_graph.values() for value in values),
        stdev(means) if len(means) > 1 else None,
        fmean(spreads) if spreads else None,
        published,
    )


def _sortability(found: Sequence[Mapping[str, float]]) -> str:
    known = [each for each in found if each]
    if not known:
        return ""
    mean = {name: fmean(each[name] for each in known) for name in known[0]}
    variance = f"{mean['variance']:.2f} by variance"
    if "raw variance" in mean:
        variance = f"{mean['raw variance']:.2f} by variance as generated, {mean['variance']:.2f} standardised"
    return (
        f"Sortability of the data, mean over graphs: {variance}, {mean['r2']:.2f} by R². At 0.5 such an order says "
        "nothing about causes; of standardised columns only chance is left in it."
    )


def _edges(
    experiment: DiscoveryExperiment, panel: str, found: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[list[str]]:
    """The edges at the column that matters: how often each method found them, and whether the paper names them."""
    effect = experiment.panels[panel].effect
    named = experiment.published_edges.get(panel, ())
    rows = [row for row in found if row != EMPTY and found[row]]
    counts: dict[tuple[str, str], dict[str, int]] = {edge: {} for edge in named}
    for row in rows:
        for run in found[row]:
            for cause, end in run["edges"]:
                if effect in (cause, end):
                    of_edge = counts.setdefault((cause, end), {})
                    of_edge[row] = of_edge.get(row, 0) + 1
    head = ["edge", "in the paper", *(experiment.methods[row].label for row in rows)]
    body = [
        [
            f"{cause} → {end}",
            "yes" if (cause, end) in named else "",
            *(f"{counts[cause, end].get(row, 0)} of {len(found[row])}" for row in rows),
        ]
        for cause, end in sorted(counts, key=lambda edge: (-sum(counts[edge].values()), edge))
    ]
    return [head, *body] if body else []


def text(column: str, score: GraphScore) -> str:
    """`9.6 ± 1.2 / 0.5`: the mean, the spread over graphs, the spread over seeds."""
    if score.mean is None:
        return "–"
    both = (score.over_graphs, score.over_seeds)
    spreads = ["–" if spread is None else _digits(column, spread) for spread in both]
    if column == SECONDS or spreads == ["–", "–"]:
        return _digits(column, score.mean)
    return f"{_digits(column, score.mean)} ± {' / '.join(spreads)}"


def _digits(column: str, value: float) -> str:
    if column == SECONDS:
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"
    return f"{value:.1f}" if column in FEW_DIGITS else f"{value:.3f}"


def shown(experiment: DiscoveryExperiment, table: DiscoveryTable) -> dict[str, Any]:
    """The table as texts."""
    beside = [c for c in experiment.columns if any(line.scores[c].published for line in table.lines)]
    head = ["", *([table.axis] if table.axis else [])]
    for column in experiment.columns:
        head += [NAMES.get(column, column), *(["paper"] if column in beside else [])]
    body = []
    for line in table.lines:
        mark = f" {LIMITED}" if line.limited else ""
        texts = [f"{line.label}{mark}", *(["" if line.at is None else f"{line.at:g}"] if table.axis else [])]
        for column in experiment.columns:
            score = line.scores[column]
            texts.append(text(column, score))
            if column in beside:
                texts.append(" ± ".join(f"{part:g}" for part in score.published or () if part is not None))
        body.append([*texts, str(line.fits) if line.fits == line.wanted else f"{line.fits} of {line.wanted}"])
    return {
        "label": table.label,
        "substitute": " ".join(part for part in (table.substitute, table.sortability) if part),
        "head": [*head, "fits"],
        "body": body,
        "guesses": 1,
    }


def records(tables: Sequence[DiscoveryTable]) -> list[dict[str, Any]]:
    """One record a number, for machines."""
    found = []
    for table in tables:
        for line in table.lines:
            for column, score in line.scores.items():
                published, spread = score.published or (None, None)
                found.append(
                    {
                        "panel": table.name,
                        "row": line.row,
                        "label": line.label,
                        "at": line.at,
                        "column": column,
                        "mean": score.mean,
                        "over_graphs": score.over_graphs,
                        "over_seeds": score.over_seeds,
                        "fits": line.fits,
                        "limited": line.limited,
                        "published": published,
                        "published_spread": spread,
                        "substitute": table.substitute,
                    }
                )
    return found
