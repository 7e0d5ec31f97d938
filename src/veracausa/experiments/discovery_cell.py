"""A cell of an experiment on causal discovery: one method on one source of data, for some graphs and some seeds.

A method may be audited while it is fitted: then its parties attack what they see of each other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.arrays import Mask
from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.experiment import EMPTY
from veracausa.experiments.table import AUDIT_SCORES

if TYPE_CHECKING:
    from veracausa.data.causal import CausalData


OURS = ("vfedcd", "local_encoders", "two_layer_encoders")
SPELLED_BEFORE = {"notears_mlp": "notears-mlp", "dagma_mlp": "dagma-mlp"}
"""Methods that had another name when the first cells were kept: a cell's key is made of the names of then."""
KNOWN_ROWS = 15
"""So many rows an attacker knows that works by known rows."""


@dataclass(frozen=True)
class DiscoveryCell(Cell):
    """What it finds depends on these settings, and on nothing else."""

    data: Mapping[str, Any]
    vary: str
    parties: int | tuple[int, ...] | Mapping[str, tuple[str, ...]]
    method: str
    method_settings: Mapping[str, Any]
    time_limit: float | None
    graphs: tuple[int, ...]
    seeds: tuple[int, ...]
    audit: tuple[str, ...] = ()
    """The attacks on what its parties open; none: it is only fitted."""

    @cached_property
    def settings(self) -> dict[str, Any]:
        names = ("data", "vary", "parties", "time_limit", "graphs", "seeds")
        own = {name: getattr(self, name) for name in names} | {"method_settings": self._resolved}
        own["method"] = SPELLED_BEFORE.get(self.method, self.method)
        if self.audit:
            own["audit"] = tuple(name.replace("_", "-") for name in self.audit)
        return {"discovery": own}

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

    @property
    def together(self) -> bool:
        """Whether its fits are trained side by side, as replicates of one model."""
        in_one_place = self.method_settings.get("engine", "floating") == "floating"
        return self.method == EMPTY or (self.method in OURS and in_one_place and not self.audit)

    @property
    def about(self) -> str:
        """What it is, in a line of progress."""
        kinds = [str(self.data[name]) for name in ("generator", "network", "attributes") if name in self.data]
        graphs = f"graph {self.graphs[0]}" if len(self.graphs) == 1 else f"{len(self.graphs)} graphs"
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return f"{self.method} on {' '.join([self.data['name'], *kinds])}, {graphs}, {seeds}"

    def run(self, store: CellStore, observer: Observer) -> None:
        store.keep(self, discover(self))


@dataclass(frozen=True)
class GraphTable:
    """One graph's rows, its columns dealt to the parties."""

    number: int
    data: CausalData
    owners: tuple[int, ...]
    called: tuple[str, ...] = ()
    """The parties' names, where they have any."""

    @property
    def parties(self) -> dict[str, list[str]]:
        held: dict[str, list[str]] = {}
        for name, owner in zip(self.data.names, self.owners, strict=True):
            held.setdefault(self.called[owner] if self.called else f"party_{owner + 1}", []).append(name)
        return held


@dataclass(frozen=True)
class FitResult:
    """What one fit gave."""

    adjacency: Mask
    seconds: float
    """Of the processor: those that pass say more about who else uses the machine."""
    notes: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """Beside those of the graph."""
    undirected: Mask | None = None
    """Edges whose direction the method does not tell; None: it tells all."""


def tables_of(cell: DiscoveryCell) -> list[GraphTable]:
    """The data of every graph of the cell."""
    from veracausa.data.causal import load_causal
    from veracausa.data.causal.parties import dealt, held_by

    tables = []
    for number in cell.graphs:
        whole = load_causal(**{**cell.data, cell.vary: number})
        if isinstance(cell.parties, Mapping):
            (data, blocks), called = held_by(whole, cell.parties), tuple(cell.parties)
        else:
            (data, blocks), called = dealt(whole, cell.parties, number), ()
        owners = {position: party for party, block in enumerate(blocks) for position in block}
        tables.append(GraphTable(number, data, tuple(owners[at] for at in range(len(data.names))), called))
    return tables


def discover(cell: DiscoveryCell) -> dict[str, Any]:
    """Fit every graph with every seed, and score the graphs that come out."""
    from veracausa.runs.machine import describe_machine

    tables = tables_of(cell)
    fits = [(table, seed) for table in tables for seed in cell.seeds]
    if cell.method == EMPTY:
        found = [FitResult(np.zeros((len(table.owners),) * 2, dtype=bool), 0.0) for table, _ in fits]
    else:
        from veracausa.experiments.replicates import side_by_side

        found = (side_by_side(cell, fits) if cell.together else None) or [_fitted(cell, *fit) for fit in fits]
    return {
        "runs": [_record(cell, *fit, result) for fit, result in zip(fits, found, strict=True)],
        "sortability": [_sortability(cell, table) for table in tables] if cell.method == EMPTY else [],
        "notes": list(dict.fromkeys(note for result in found for note in result.notes)),
        "columns": list(tables[0].data.names),
        "data_notes": list(tables[0].data.notes),
        "environment": {"date": date.today().isoformat(), **describe_machine()},
    }


def _fitted(cell: DiscoveryCell, table: GraphTable, seed: int) -> FitResult:
    from veracausa.discovery.methods import build

    if cell.audit:
        return audited(cell, table, seed)
    started = time.process_time()
    if cell.method == "vfedcd":
        from veracausa.discovery.methods.vfedcd.estimator import VFedCD

        parties = None if cell.together else table.parties
        fitted: Any = VFedCD(**cell.method_settings, seed=seed).fit(table.data, parties=parties)
    else:
        how = {"seed": seed, "time_limit": cell.time_limit, "timer": "processor"}
        fitted = build(cell.method, **cell.method_settings, **how).fit(table.data)
    seconds = time.process_time() - started
    notes, sent = _notes(table, fitted.notes_), _sent(fitted)
    return FitResult(fitted.adjacency_matrix_, seconds, notes, sent, undirected=fitted.undirected_)


def _sent(fitted: Any) -> dict[str, float]:
    """What all members of a fit between parties sent together; nothing of a fit in one place."""
    sent = getattr(fitted, "sent_", {}).values()
    if not sent:
        return {}
    bytes_sent = sum(each["bytes_sent"] for each in sent)
    return {"messages": float(sum(each["messages"] for each in sent)), "megabytes": bytes_sent / 1e6}


def audited(cell: DiscoveryCell, table: GraphTable, seed: int) -> FitResult:
    """Fitted as the parties' programs, and attacked by the attacks that the cell names."""
    from veracausa.audit.column_scores import declared, measured
    from veracausa.audit.discovery import train
    from veracausa.audit.discovery_views import all_but_one, single
    from veracausa.discovery.methods.vfedcd.estimator import VFedCD

    started = time.process_time()
    method = VFedCD(**{"engine": "federated", **cell.method_settings}, seed=seed)
    recording = train(method, table.data, table.parties)
    seconds = time.process_time() - started
    found = measured(single(recording, KNOWN_ROWS, seed), cell.audit, {})
    scores = _audit_scores(found, "")
    scores |= {"r2_own": found["linear_r2"]["own columns"], "r2_features": found["linear_r2"]["and all epochs"]}
    if len(table.parties) > 2 and next(iter(recording.parties.values())).apart:
        together = declared(cell.audit, "colluding")
        scores |= _audit_scores(measured(all_but_one(recording, KNOWN_ROWS, seed), together, {}), "together_")
    return FitResult(method.adjacency_matrix_, seconds, tuple(method.notes_), scores | _sent(method))


def _audit_scores(found: dict[str, Any], prefix: str) -> dict[str, float]:
    blind = {"best_own": "best own attribute", "random": "random guess"}
    scores = {f"{prefix}{short}": found["blind"][name]["mean"] for short, name in blind.items()}
    for name, reached in found["attacks"].items():
        if reached is not None:
            scores[f"{prefix}{name.replace('-', '_')}"] = reached["mean"]
    return {name: value for name, value in scores.items() if name in AUDIT_SCORES}


def _notes(table: GraphTable, notes: Sequence[str]) -> tuple[str, ...]:
    """What is to be said under a table of many graphs: of their columns only that some take no part."""
    columns = [note for note in notes if note.split(": ")[0] in table.data.names]
    idle = sum(": constant" in note for note in columns)
    said = (f"graph {table.number}: {idle} of its columns are constant and take no part",) if idle else ()
    return (*(note for note in notes if note not in columns), *said)


def _record(cell: DiscoveryCell, table: GraphTable, seed: int, found: FitResult) -> dict[str, Any]:
    from veracausa.metrics.cpdag import cpdag_scores
    from veracausa.metrics.graphs import graph_scores

    truth, names = table.data.truth, table.data.names
    lines = np.zeros_like(found.adjacency) if found.undirected is None else found.undirected
    scores = {}
    if truth is not None:
        scores = {**graph_scores(truth, found.adjacency, table.owners), **cpdag_scores(truth, found.adjacency, lines)}
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


def _sortability(cell: DiscoveryCell, table: GraphTable) -> dict[str, float]:
    from veracausa.data.causal import load_causal
    from veracausa.metrics.graphs import r2_sortability, var_sortability

    if table.data.truth is None:
        return {}
    values, truth = table.data.values, table.data.truth
    found = {"variance": var_sortability(values, truth), "r2": r2_sortability(values, truth)}
    if cell.data["name"] in ("synthetic", "suite"):
        raw = load_causal(**{**cell.data, cell.vary: table.number, "standardise": False})
        assert raw.truth is not None
        found["raw variance"] = var_sortability(raw.values, raw.truth)
    return found
