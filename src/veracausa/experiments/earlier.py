"""What an earlier run left in a folder of results, for rows that no cell here has.

Cells are large in number and stay on the machine that made them; tables travel. A table that is made again elsewhere
keeps the rows that it had, as long as they are of the same cells.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from veracausa.errors import InputError
from veracausa.experiments.discovery_grid import row_cells
from veracausa.experiments.experiment import DiscoveryExperiment
from veracausa.experiments.table import Value


@dataclass(frozen=True)
class EarlierLine:
    """One row of a panel as it was measured before."""

    fits: int
    limited: int
    numbers: dict[str, tuple[float | None, float | None, float | None]]
    """Column -> mean, spread over graphs, spread over seeds."""

    def value(self, column: str, published: tuple[float, float | None] | None) -> Value:
        mean, over_graphs, over_seeds = self.numbers.get(column, (None, None, None))
        return Value(mean, () if mean is None else (over_graphs, over_seeds), published=published)


@dataclass
class EarlierResults:
    """The rows of a folder that an experiment on causal discovery was written into."""

    lines: dict[tuple[str, str], EarlierLine] = field(default_factory=dict)
    """By panel and row."""
    keys: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """The cells that each was made of."""
    machines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What is there; nothing where files are missing or not of this kind."""
        try:
            lines = _lines(folder / "table.csv")
            return cls(lines, _keys(folder, lines), machines_of(folder))
        except (OSError, ValueError, KeyError, TypeError, ValidationError, InputError):
            return cls()

    def line(self, panel: str, row: str, wanted: frozenset[str]) -> EarlierLine | None:
        """The row, if all of its cells are among those wanted now: of other settings it says nothing."""
        keys = self.keys.get((panel, row))
        return self.lines.get((panel, row)) if keys and keys <= wanted else None


def _lines(path: Path) -> dict[tuple[str, str], EarlierLine]:
    found: dict[tuple[str, str], EarlierLine] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for record in csv.DictReader(file):
            fits, limited = int(record["fits"]), int(record["limited"])
            line = found.setdefault((record["panel"], record["row"]), EarlierLine(fits, limited, {}))
            mean, over_graphs, over_seeds = (_number(record[name]) for name in ("mean", "over_graphs", "over_seeds"))
            line.numbers[record["column"]] = (mean, over_graphs, over_seeds)
    return {place: line for place, line in found.items() if line.fits}


def _number(text: str) -> float | None:
    return float(text) if text else None


def _keys(folder: Path, lines: Mapping[tuple[str, str], EarlierLine]) -> dict[tuple[str, str], frozenset[str]]:
    """As the run wrote them down; of a folder without them, those that its settings have today."""
    written = folder / "cells.json"
    if written.is_file():
        return {(each["panel"], each["row"]): frozenset(each["cells"]) for each in json.loads(written.read_text())}
    tree = tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))
    experiment = DiscoveryExperiment.model_validate(tree)
    return {place: frozenset(cell.key for cell in row_cells(experiment, *place)) for place in lines}


def machines_of(folder: Path) -> list[dict[str, Any]]:
    """The machines that a folder of results is of; where it does not say it, those of the folders around it."""
    for place in (folder, folder.parent, folder.parent.parent):
        if (path := place / "environment.json").is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
    return []
