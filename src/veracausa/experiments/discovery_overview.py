"""One table over many data sets: a line a data set, a column a method, and beside them what sorting would give away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from veracausa.experiments.experiment import EMPTY, DiscoveryExperiment
from veracausa.experiments.table import PanelTable, TextTable, column_name, number_text

SORTABILITIES = ("var-sortability", "R²-sortability")


def overview_tables(
    experiment: DiscoveryExperiment, tables: Sequence[PanelTable], sortability: Mapping[str, Mapping[str, float]]
) -> list[TextTable]:
    """A table for each score that the experiment wants an overview of."""
    return [_overview(experiment, tables, sortability, score) for score in experiment.overview]


def _overview(
    experiment: DiscoveryExperiment,
    tables: Sequence[PanelTable],
    sortability: Mapping[str, Mapping[str, float]],
    score: str,
) -> TextTable:
    rows = [row for row in dict.fromkeys(line.row for table in tables for line in table.lines) if row != EMPTY]
    means = {table.name: means_of(table, score) for table in tables}
    groups = dict.fromkeys(experiment.panels[table.name].group for table in tables)
    body = []
    for group in groups:
        inside = [table for table in tables if experiment.panels[table.name].group == group]
        for table in inside:
            shown = [_text(score, means[table.name].get(row)) for row in rows]
            body.append([table.label, *_sorted_by(sortability.get(table.name, {})), *shown])
        if len(inside) > 1:
            # A mean over other data sets than those of its neighbours would be compared with them all the same.
            whole = [[means[table.name].get(row) for table in inside] for row in rows]
            shown = [_text(score, None if None in each else fmean(filter_none(each))) for each in whole]
            body.append([f"mean: {group or 'all'}", "", "", *shown])
    head = ["", *SORTABILITIES, *(experiment.methods[row].label for row in rows)]
    note = (
        "Sortability is that of the data as generated, mean over graphs: at 0.5 the order of variances, or of R², says "
        "nothing about causes. A mean is there if the method was run on every data set of the group."
    )
    return TextTable(f"Overview: {column_name(score)}", head, body, note)


def means_of(table: PanelTable, score: str) -> dict[str, float]:
    """Row -> the mean of the score, where there is one."""
    found = {line.row: line.values[score].mean for line in table.lines if score in line.values}
    return {row: mean for row, mean in found.items() if mean is not None}


def filter_none(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sorted_by(found: Mapping[str, float]) -> tuple[str, str]:
    variance = found.get("raw variance", found.get("variance"))
    return _share(variance), _share(found.get("r2"))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _text(score: str, mean: float | None) -> str:
    return "–" if mean is None else number_text(score, mean)
