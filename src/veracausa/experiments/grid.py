"""The grid of an experiment, and what every kind of experiment must say of its own for the engine to run it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.schedule import CellProgress
from veracausa.experiments.table import PanelTable, TextTable, records, table_text

if TYPE_CHECKING:
    from veracausa.config import Job
    from veracausa.experiments.experiment import Experiment
    from veracausa.experiments.figures import Drawing


@dataclass(frozen=True)
class Place:
    """One place of the grid: a row of a panel, at one value of the axis, with one seed, and the cells it needs."""

    panel: str
    row: str
    at: float | None
    seed: int
    cells: Mapping[str, Cell]
    """By what they are called in the columns of the table."""


@dataclass
class Reproduction(ABC):
    """One experiment on its way: from places to cells, from their results to tables, figures and a page."""

    experiment: Experiment
    out: Path
    places: list[Place] = field(default_factory=list)
    progress: CellProgress = field(default_factory=lambda: CellProgress(0))
    tables: list[PanelTable] = field(default_factory=list)
    kept_cells: int = 0
    """So many cells have no result here, but their rows were in the table of an earlier run."""
    earlier_machines: Sequence[dict[str, Any]] = ()
    """Those that such rows were measured on."""

    @abstractmethod
    def gather(self, store: CellStore, why_not: Mapping[str, str]) -> None:
        """Make the tables of what is finished; `why_not` says of a cell's key why it has no result."""

    @abstractmethod
    def footnotes(self) -> list[str]:
        """What a reader of the tables must know."""

    def further_places(self, store: CellStore) -> list[Place]:
        """Places that are wanted because of what the others found; they join the grid."""
        return []

    def drawings(self, store: CellStore) -> list[Drawing]:
        """The pictures of the page."""
        from veracausa.experiments.figures import drawings_of

        return drawings_of(self.experiment.figures, self.tables)

    @property
    def cells(self) -> list[Cell]:
        return [cell for place in self.places for cell in place.cells.values()]

    @property
    def keys(self) -> list[dict[str, Any]]:
        """Where which cells belong, for `cells.json`."""
        return [
            {"panel": place.panel, "row": place.row, "at": place.at, "seed": place.seed}
            | {name: cell.key for name, cell in place.cells.items()}
            for place in self.places
        ]

    @property
    def texts(self) -> list[TextTable]:
        """The tables as they are shown."""
        return [table_text(table, self.experiment.columns) for table in self.tables]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The numbers for machines."""
        return records(self.tables)

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs behind the rows, each of which can be trained alone."""
        return {}

    def machines(self, store: CellStore) -> list[dict[str, Any]]:
        """The machines that the cells ran on, each once."""
        found = {json.dumps(machine, sort_keys=True): machine for machine in self.earlier_machines}
        for cell in self.cells:
            if environment := (cell.result(store) or {}).get("environment"):
                machine = {name: value for name, value in environment.items() if name != "seed"}
                found[json.dumps(machine, sort_keys=True)] = machine
        return list(found.values())
