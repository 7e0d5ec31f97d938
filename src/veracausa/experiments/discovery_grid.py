"""The grid of an experiment on causal discovery: which cells a row of a panel is made of."""

from __future__ import annotations

from collections.abc import Iterator

from veracausa.experiments.discovery_cell import OURS, DiscoveryCell
from veracausa.experiments.experiment import EMPTY, DiscoveryExperiment
from veracausa.experiments.grid import Place


def row_cells(experiment: DiscoveryExperiment, panel: str, row: str) -> list[DiscoveryCell]:
    """A row's cells: all graphs and seeds at once where they are trained side by side, else one of each."""
    source, method = experiment.panels[panel], experiment.methods[row]
    graphs = (source.graphs or experiment.graphs)[: method.graphs]
    seeds = experiment.seeds[:1] if method.name == EMPTY else experiment.seeds[: method.seeds]
    data = {**source.data, **experiment.always}
    limit = None if method.name in (*OURS, EMPTY) else experiment.time_limit
    parties = method.parties or source.parties
    common = (data, source.vary, parties, method.name, method.settings, limit)
    whole = DiscoveryCell(*common, graphs, seeds, method.audit)
    if whole.together:
        return [whole]
    return [DiscoveryCell(*common, (graph,), (seed,), method.audit) for graph in graphs for seed in seeds]


def discovery_places(experiment: DiscoveryExperiment) -> Iterator[Place]:
    """One place a row: its cells differ in their graphs and seeds."""
    for panel in experiment.show:
        for row in experiment.rows_of(panel):
            cells = {cell.about: cell for cell in row_cells(experiment, panel, row)}
            yield Place(panel, row, experiment.methods[row].at, experiment.seeds[0], cells)
