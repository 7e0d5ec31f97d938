"""A cell of an experiment on causal discovery: one method on one source of data, for some graphs and some seeds."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veracausa.data.causal import CausalData

EMPTY = "empty"
"""The row of the graph without edges."""
OURS = ("vfedcd", "local_encoders")


@dataclass(frozen=True)
class DiscoveryCell:
    """What it finds depends on these settings, and on nothing else."""

    data: Mapping[str, Any]
    vary: str
    parties: int | tuple[int, ...]
    method: str
    method_settings: Mapping[str, Any]
    time_limit: float | None
    graphs: tuple[int, ...]
    seeds: tuple[int, ...]
    audit: tuple[str, ...] = ()
    """The attacks on what its parties open; none: it is only fitted."""
    reading: None = None
    training: None = None

    @cached_property
    def settings(self) -> dict[str, Any]:
        names = ("data", "vary", "parties", "method", "time_limit", "graphs", "seeds")
        own = {name: getattr(self, name) for name in names} | {"method_settings": self._resolved}
        return {"discovery": own | ({"audit": self.audit} if self.audit else {})}

    @cached_property
    def _resolved(self) -> dict[str, Any]:
        """The method's settings with its defaults or its profile filled in: when these change, it is another cell."""
        from veracausa.discovery.methods import build
        from veracausa.discovery.methods.vfedcd.estimator import VFedCD
        from veracausa.discovery.methods.vfedcd.settings import spelled_before

        if self.method == EMPTY:
            return {}
        if self.method in OURS:
            # What is only about parties counts where it is given: a new option of theirs changes no other fit.
            # The names of earlier versions, by which cells are kept.
            resolved = VFedCD(**self.method_settings).settings()
            chosen = spelled_before(self.method_settings) | resolved.recorded()
        else:
            chosen = build(self.method, **self.method_settings).get_params()
        own = ("seed", "time_limit", "timer")
        return {name: value for name, value in chosen.items() if value is not None and name not in own}

    @cached_property
    def key(self) -> str:
        written = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(written.encode()).hexdigest()[:20]

    @property
    def together(self) -> bool:
        """Whether its fits are trained side by side, as replicates of one model."""
        in_one_place = self.method_settings.get("engine", "floating") == "floating"
        return self.method == EMPTY or (self.method in OURS and in_one_place and not self.audit)

    @property
    def about(self) -> str:
        """What it is, in a line of progress."""
        size = f" {self.data['attributes']}" if "attributes" in self.data else ""
        graphs = f"graph {self.graphs[0]}" if len(self.graphs) == 1 else f"{len(self.graphs)} graphs"
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return f"{self.method} on {self.data['name']}{size}, {graphs}, {seeds}"


@dataclass(frozen=True)
class Table:
    """One graph's rows, its columns dealt to the parties."""

    number: int
    data: CausalData
    owners: tuple[int, ...]

    @property
    def parties(self) -> dict[str, list[str]]:
        held: dict[str, list[str]] = {}
        for name, owner in zip(self.data.names, self.owners, strict=True):
            held.setdefault(f"party_{owner + 1}", []).append(name)
        return held


@dataclass(frozen=True)
class CellResult:
    """What one fit gave."""

    adjacency: NDArray[np.bool_]
    seconds: float
    """Of the processor: those that pass say more about who else uses the machine."""
    notes: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """Beside those of the graph."""


def tables_of(cell: DiscoveryCell) -> list[Table]:
    """The data of every graph of the cell."""
    from veracausa.data.causal import load_causal
    from veracausa.data.causal.parties import dealt

    tables = []
    for number in cell.graphs:
        data, blocks = dealt(load_causal(**{**cell.data, cell.vary: number}), cell.parties, number)
        owners = {position: party for party, block in enumerate(blocks) for position in block}
        tables.append(Table(number, data, tuple(owners[at] for at in range(len(data.names)))))
    return tables


def discover(cell: DiscoveryCell) -> dict[str, Any]:
    """Fit every graph with every seed, and score the graphs that come out."""
    from veracausa.runs.machine import describe_machine

    tables = tables_of(cell)
    fits = [(table, seed) for table in tables for seed in cell.seeds]
    if cell.method == EMPTY:
        found = [CellResult(np.zeros((len(table.owners),) * 2, dtype=bool), 0.0) for table, _ in fits]
    else:
        from veracausa.experiments.discovery.replicates import side_by_side

        found = (side_by_side(cell, fits) if cell.together else None) or [_fitted(cell, *fit) for fit in fits]
    return {
        "runs": [_record(cell, *fit, result) for fit, result in zip(fits, found, strict=True)],
        "sortability": [_sortability(cell, table) for table in tables] if cell.method == EMPTY else [],
        "notes": list(dict.fromkeys(note for result in found for note in result.notes)),
        "columns": list(tables[0].data.names),
        "data_notes": list(tables[0].data.notes),
        "environment": describe_machine(),
    }


def _fitted(cell: DiscoveryCell, table: Table, seed: int) -> CellResult:
    import polars as pl

    from veracausa.discovery.methods import build

    if cell.audit:
        from veracausa.experiments.discovery.audited import audited

        return audited(cell, table, seed)

    frame = pl.DataFrame(dict(zip(table.data.names, table.data.values.T, strict=True)))
    started = time.process_time()
    if cell.method == "vfedcd":
        from veracausa.discovery.methods.vfedcd.estimator import VFedCD

        parties = None if cell.together else table.parties
        fitted: Any = VFedCD(**cell.method_settings, seed=seed).fit(frame, parties=parties)
    else:
        how = {"seed": seed, "time_limit": cell.time_limit, "timer": "processor"}
        fitted = build(cell.method, **cell.method_settings, **how).fit(frame)
    return CellResult(fitted.adjacency_matrix_, time.process_time() - started, _notes(table, fitted.notes_))


def _notes(table: Table, notes: Sequence[str]) -> tuple[str, ...]:
    """What is to be said under a table of many graphs: of their columns only that some take no part."""
    columns = [note for note in notes if note.split(": ")[0] in table.data.names]
    idle = sum(": constant" in note for note in columns)
    said = (f"graph {table.number}: {idle} of its columns are constant and take no part",) if idle else ()
    return (*(note for note in notes if note not in columns), *said)


def _record(cell: DiscoveryCell, table: Table, seed: int, found: CellResult) -> dict[str, Any]:
    from veracausa.metrics.graphs import graph_scores

    truth, names = table.data.truth, table.data.names
    scores = graph_scores(truth, found.adjacency, table.owners) if truth is not None else {}
    scores.setdefault("edges", int(found.adjacency.sum()))
    scores |= found.scores
    return {
        "graph": table.number,
        "seed": seed,
        "seconds": found.seconds,
        "limited": cell.time_limit is not None and found.seconds >= cell.time_limit,
        "scores": {name: float(value) for name, value in scores.items() if np.isfinite(value)},
        "edges": [[names[cause], names[effect]] for cause, effect in np.argwhere(found.adjacency)],
    }


def _sortability(cell: DiscoveryCell, table: Table) -> dict[str, float]:
    from veracausa.data.causal import load_causal
    from veracausa.metrics.graphs import r2_sortability, var_sortability

    if table.data.truth is None:
        return {}
    values, truth = table.data.values, table.data.truth
    found = {"variance": var_sortability(values, truth), "r2": r2_sortability(values, truth)}
    if cell.data["name"] == "synthetic":
        raw = load_causal(**{**cell.data, cell.vary: table.number, "standardise": False})
        assert raw.truth is not None
        found["raw variance"] = var_sortability(raw.values, raw.truth)
    return found
