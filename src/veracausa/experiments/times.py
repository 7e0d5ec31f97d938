"""The figure of times: what each defense adds to one exchange, measured on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.experiment import TimesSpec, TrainingExperiment
from veracausa.experiments.figures import Drawing, bars_of_times, milliseconds
from veracausa.experiments.grid import Place, Reproduction
from veracausa.experiments.table import TextTable
from veracausa.runs.machine import describe_machine

if TYPE_CHECKING:
    pass

DEFENSE = "defense "
HEAD = ["", "ms", "beside", "its ms", "extra ms", "ratio"]


@dataclass(frozen=True)
class TimesCell(Cell):
    """The times of all defenses on one machine."""

    alone: ClassVar[bool] = True

    spec: TimesSpec
    machine: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        return {"bench": self.spec.model_dump(mode="json"), "machine": dict(self.machine)}

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def fatal(self) -> tuple[type[Exception], ...]:
        return (Exception,)

    @property
    def about(self) -> str:
        return f"times of defenses on {_device(self.machine)}"

    def run(self, store: CellStore, observer: Observer) -> None:
        from veracausa.experiments.defense_times import time_defenses, time_defenses_quickly

        spec, names = self.spec, self.spec.names or None
        if spec.quick:
            rows = time_defenses_quickly(names, spec.width)
        else:
            rows = time_defenses(names, spec.precision, spec.compiled, spec.width)
        store.keep(self, {"rows": [row.as_dict() for row in rows]})


@dataclass
class TimesReproduction(Reproduction):
    """An experiment that takes times, and no scores."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=describe_machine)

    @classmethod
    def begin(cls, experiment: TrainingExperiment, out: Path, overrides: Sequence[str] = ()) -> TimesReproduction:
        found = cls(experiment, out)
        assert experiment.bench is not None
        found.places = [Place("", "", None, 0, {"times": TimesCell(experiment.bench, found.machine)})]
        return found

    def gather(self, store: CellStore, why_not: Mapping[str, str]) -> None:
        found = self.cells[0].result(store) or {"rows": []}
        self.rows = [row for row in found["rows"] if row["case"].startswith((DEFENSE, "once: "))]

    def footnotes(self) -> list[str]:
        return list(self.experiment.footnotes)

    def machines(self, store: CellStore) -> list[dict[str, Any]]:
        return [self.machine]

    @property
    def texts(self) -> list[TextTable]:
        label = f"One passive party, on {_device(self.machine)}"
        return [TextTable(label, HEAD, [_texts(row) for row in self.rows])]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows with what a defense adds."""
        names = ("case", "seconds", "against", "against_seconds", "ratio")
        return [
            {**{name: row[name] for name in names}, "extra_seconds": row["seconds"] - row["against_seconds"]}
            for row in self.rows
        ]

    def drawings(self, store: CellStore) -> list[Drawing]:
        exchanges = [row for row in self.rows if row["case"].startswith(DEFENSE)]
        drawn = {_label(row): row["seconds"] - row["against_seconds"] for row in exchanges}
        ordered = dict(sorted(drawn.items(), key=lambda item: item[1]))
        return [bars_of_times("What a defense adds to one exchange", ordered)] if ordered else []


def _device(machine: Mapping[str, Any]) -> str:
    return str(machine["device"] if machine["device"] != "cpu" else machine["cpu"])


def _label(row: Mapping[str, Any]) -> str:
    """The defense and how it was run; what is rebuilt from formulas is called so, as in every table."""
    name = str(row["case"]).removeprefix(DEFENSE)
    return f"{name}, reconstructed" if name.startswith("invl_") else name


def _texts(row: Mapping[str, Any]) -> list[str]:
    seconds, plain = row["seconds"], row["against_seconds"]
    own, usual, extra = (milliseconds(value) for value in (seconds, plain, seconds - plain))
    return [_label(row), own, row["against"], usual, extra, f"{row['ratio']:.2f}"]
