"""An experiment on causal discovery: data sets as panels, methods as rows, several graphs and several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, ValidationError, model_validator

from veracausa.errors import InputError
from veracausa.experiments.discovery import audited
from veracausa.experiments.discovery.cells import EMPTY, OURS, DiscoveryCell
from veracausa.experiments.experiment import ExperimentSection, FigureSpec, Published, _known
from veracausa.metrics.graphs import graph_scores

SECONDS = "seconds"
PAPER = "VFedCD (anonymous authors, under review)"
COLUMNS = (*graph_scores([[0]], [[0]], [0]), SECONDS, *audited.NAMES)


class Method(ExperimentSection):
    """A row: a method of causal discovery with its settings."""

    label: str
    name: str
    """`vfedcd`, `local_encoders`, `empty`, or a baseline."""
    settings: dict[str, Any] = Field(default_factory=dict)
    at: float | None = None
    """Where it lies on the panel's axis; rows of one label are then one line of the figure."""
    seeds: int | None = Field(None, ge=1)
    """Not all of the seeds: a method that draws nothing needs one."""
    graphs: int | None = Field(None, ge=1)
    """Not all of the graphs: for a method that is slow."""
    audit: tuple[str, ...] = ()
    """Attacks on what the parties open while it is fitted."""


class DataPanel(ExperimentSection):
    """One data set, or a family of graphs of one size."""

    label: str
    data: dict[str, Any]
    """A source of causal data and its settings."""
    vary: str = "seed"
    """The setting that a graph's number goes to."""
    graphs: tuple[int, ...] = ()
    """The experiment's graphs, unless this panel has others."""
    parties: int | tuple[int, ...] = 3
    """How many parties share the columns, or how many columns each has."""
    rows: tuple[str, ...] = ()
    axis: str = ""
    """What `at` of its rows is."""
    effect: str = ""
    """Where no true graph is known: the column whose edges are listed."""
    substitute: str = ""


class DiscoveryExperiment(ExperimentSection):
    """One published table or figure on causal discovery at one scale."""

    name: str
    scale: str
    item: str
    title: str
    about: str = ""
    says: str = ""
    """What this scale is, for the reader."""
    columns: tuple[str, ...] = ()
    figures: tuple[FigureSpec, ...] = ()
    show: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    graphs: tuple[int, ...] = (200,)
    seeds: tuple[int, ...] = (0,)
    always: dict[str, Any] = Field(default_factory=dict)
    """Laid over every panel's data."""
    time_limit: float | None = Field(None, gt=0)
    """Seconds of the processor for one fit of a baseline."""
    panels: dict[str, DataPanel] = Field(default_factory=dict)
    methods: dict[str, Method] = Field(default_factory=dict)
    published: dict[str, dict[str, dict[str, Published]]] = Field(default_factory=dict)
    """Panel -> row -> column -> what the paper prints."""
    published_edges: dict[str, tuple[tuple[str, str], ...]] = Field(default_factory=dict)
    """Panel -> the edges (cause, effect) that the paper names."""
    substitute: str = ""
    footnotes: tuple[str, ...] = ()
    axis: None = None
    bench: None = None

    @model_validator(mode="after")
    def _named(self) -> DiscoveryExperiment:
        for panel in self.show:
            _known(panel, self.panels, "show", "panel")
            for row in self.rows_of(panel):
                _known(row, self.methods, f"panels.{panel}.rows", "method")
        for column in self.columns:
            _known(column, COLUMNS, "columns", "score")
        for panel, of_panel in self.published.items():
            _known(panel, self.panels, "published", "panel")
            for row, values in of_panel.items():
                _known(row, self.methods, f"published.{panel}", "method")
                for column in values:
                    _known(column, COLUMNS, f"published.{panel}.{row}", "score")
        return self

    def rows_of(self, panel: str) -> tuple[str, ...]:
        """The panel's rows, the empty graph last: what is not better than it has found nothing."""
        rows = self.panels[panel].rows or self.rows
        return tuple(dict.fromkeys([*(row for row in rows if row != EMPTY), EMPTY]))

    def substituted(self, panel: str) -> str:
        return self.panels[panel].substitute or self.substitute

    def label_of(self, panel: str) -> str:
        return f"{self.panels[panel].label} (stand-in data)" if self.substituted(panel) else self.panels[panel].label

    def published_at(self, panel: str, row: str, column: str) -> tuple[float, float | None] | None:
        """What the paper prints there, with its spread."""
        value = None if self.substituted(panel) else self.published.get(panel, {}).get(row, {}).get(column)
        return value if value is None or isinstance(value, tuple) else (value, None)

    def cells_of(self, panel: str, row: str) -> list[DiscoveryCell]:
        """A row's cells: all graphs and seeds at once where they are trained side by side, else one of each."""
        source, method = self.panels[panel], self.methods[row]
        graphs = (source.graphs or self.graphs)[: method.graphs]
        seeds = self.seeds[:1] if method.name == EMPTY else self.seeds[: method.seeds]
        data = {**source.data, **self.always}
        limit = None if method.name in (*OURS, EMPTY) else self.time_limit
        parties = source.parties
        common = (data, source.vary, parties, method.name, method.settings, limit)
        whole = DiscoveryCell(*common, graphs, seeds, method.audit)
        if whole.together:
            return [whole]
        return [DiscoveryCell(*common, (graph,), (seed,), method.audit) for graph in graphs for seed in seeds]

    def places(self) -> Iterator[tuple[str, str, list[DiscoveryCell]]]:
        for panel in self.show:
            for row in self.rows_of(panel):
                yield panel, row, self.cells_of(panel, row)


def validated(tree: Mapping[str, Any], where: str) -> DiscoveryExperiment:
    """The experiment, or one sentence on the first thing that is wrong."""
    try:
        return DiscoveryExperiment.model_validate(tree)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        raise InputError(f"{where}: {f'{place}: ' if place else ''}{message}") from None
