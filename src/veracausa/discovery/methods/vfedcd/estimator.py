"""VFedCD as an estimator: one causal graph over columns that one party holds, or several."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.data.causal.columns import FEW_ROWS, PreparedTable, arbitrary_order, prepare, two_values, without_missing
from veracausa.data.causal.frames import as_causal
from veracausa.discovery.base import as_edges, clock, edge_constraints
from veracausa.discovery.engines.centralized import RESAMPLES_STATE, Centralized, bootstrap_graphs
from veracausa.discovery.engines.literal.protocol import published_warnings
from veracausa.discovery.engines.mpc.servers import computing
from veracausa.discovery.graphs import chosen_graph, is_acyclic, thresholded
from veracausa.discovery.methods import method
from veracausa.discovery.methods.vfedcd.decoders import SQUARES
from veracausa.discovery.methods.vfedcd.diagnostics import FIGURES, SUITS, TWO_VALUES, protection_in_words, warnings
from veracausa.discovery.methods.vfedcd.settings import (
    GROUPS,
    RENAMED,
    Settings,
    grouped,
    old_names,
    profile_note,
    resolve,
)
from veracausa.discovery.methods.vfedcd.structure import rule_in_words
from veracausa.discovery.party_columns import FederatedDiscovery, held_columns
from veracausa.discovery.privacy.check import check_choice, needs_secrets
from veracausa.discovery.result import choice_in_words
from veracausa.errors import InputError
from veracausa.events import Observer, event_of
from veracausa.seeding import derive

if TYPE_CHECKING:
    from veracausa.discovery.engines import Engine
    from veracausa.discovery.engines.launch import Watch


MANY = 200
"""Fewer rows than this are said to be few."""


def _flat_names_too(estimator: type[VFedCD]) -> type[VFedCD]:
    """Let the constructor take a group's settings by their own names, too: `VFedCD(epochs=60)`."""
    by_groups = estimator.__init__

    @functools.wraps(by_groups)
    def __init__(self: VFedCD, **given: Any) -> None:
        parameters, self._notes = grouped(given)
        by_groups(self, **parameters)

    estimator.__init__ = __init__  # type: ignore[assignment, method-assign]
    return estimator


@method("vfedcd")
@_flat_names_too
@dataclass(kw_only=True, eq=False, repr=False)
class VFedCD(FederatedDiscovery):
    """Causal discovery by one small network an attribute, trained under sparsity and acyclicity, then cut to a DAG.

    Parameters
    ----------
    profile
        Where settings come from that are not given: `recommended`, `literal` for what the paper prints, or
        `paper_repaired` for the paper with what it leaves open chosen so that its numbers come out.
    model, search, protection
        Mappings of settings, see `ModelGroup`, `SearchGroup` and `ProtectionGroup` in `vfedcd.settings`. A setting may
        also be given by its own name: `VFedCD(epochs=60)` is `VFedCD(search={"epochs": 60})`.
    threshold
        The strength an edge must have: a number, or the rule that finds it. None: that of the profile.
    engine
        `federated` runs every party and the validator as programs that exchange messages. `floating` runs the same
        model in one place. By default the first where `fit` is given parties.
    link
        How the parties' programs run: in `threads` or in `processes`.
    bootstrap
        So many resamples of the rows, for the confidence of edges.

    Examples
    --------
    >>> VFedCD(search={"epochs": 60}).fit(frame, parties={"a": ["age"], "b": ["dose"]}).edges_  # doctest: +SKIP
    """

    fast_settings: ClassVar[Mapping[str, Any]] = {"epochs": 3, "refit_epochs": 2, "searches": []}
    federated: ClassVar[bool] = True

    profile: str = "recommended"
    model: Mapping[str, Any] | None = None
    search: Mapping[str, Any] | None = None
    protection: Mapping[str, Any] | None = None
    threshold: float | Literal["held_out", "held_out_graphs", "mixture"] | None = None  # type: ignore[assignment]
    engine: Literal["floating", "federated"] | None = None
    link: Literal["threads", "processes"] = "threads"
    bootstrap: int = 0

    def __getattr__(self, name: str) -> Any:
        """A setting of any group by its own name, that of the profile where it is not given."""
        if name in Settings.model_fields:
            return getattr(self.settings(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """A setting of a group goes into its group: `method.epochs = 60`."""
        if any(name in group.model_fields for group in GROUPS.values()):
            self.set_params(**{name: value})
        else:
            super().__setattr__(name, value)

    def set_params(self, **given: Any) -> Self:
        """Change parameters, or settings of the groups by their own names."""
        parameters, notes = grouped({**{name: getattr(self, name) for name in GROUPS}, **given})
        self._notes: list[str] = [*self._notes, *notes]
        super().set_params(**parameters)
        return self

    @classmethod
    def job_options(cls) -> dict[str, tuple[Any, Any]]:
        """Flat: a job may leave the groups out."""
        more = {name: (field.annotation | None, None) for name, field in Settings.model_fields.items()}  # type: ignore[operator]
        before = dict.fromkeys(RENAMED, (Any, None))
        return before | more | super().job_options()

    def job_settings(self) -> dict[str, Any]:
        """Flat, with those of the profile written out."""
        own = {name: value for name, value in super().job_settings().items() if name not in GROUPS}
        return own | {name: value for name, value in self.settings().model_dump().items() if value is not None}

    def settings(self) -> Settings:
        """All settings, with those of the profile filled in."""
        return resolve({name: getattr(self, name) for name in GROUPS}, profile=self.profile, threshold=self.threshold)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        parties: Mapping[str, Sequence[Any]] | None = None,
        observer: Observer | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        watch: Watch | None = None,
        start_graph: Any = None,
    ) -> Self:
        """Learn from a pandas or polars frame or an array; `parties` maps each party to its columns.

        `start_graph` has the edges that `start = "moments"` begins with, where they are known already. A fit keeps its
        checkpoints in `out`, a federated one its ledgers too, and goes on from them with `resume`. `watch` is shown
        every party of a federated fit before it runs.
        """
        settings, tell = self.settings(), observer or (lambda event: None)
        data = as_causal(X)
        names = data.names
        held = held_columns(parties, names)
        kind = self.engine_for(len(held), parties is not None)
        check_choice(settings, kind, self.bootstrap)
        must, never = edge_constraints(self.required, self.forbidden, names)
        table, kept, notes = self._prepared(settings, data.values, names, must, never, data.nominal)
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        self.parties_: dict[str, tuple[str, ...]] = held
        self.engine_: str = kind
        if settings.start == "moments" or start_graph is not None:
            settings, table = self._started(settings, table, as_edges(start_graph, names, "start_graph"), kept)

        def progress(share: float) -> None:
            tell({"event": "progress", "what": "graph", "share": share})

        folder = None if out is None else Path(out)
        engine = self._engine(settings, table, tell, watch)
        self.announced_ = engine.expected(settings, table)
        if self.announced_ is not None:
            tell(event_of("announced", self.announced_))
        found = engine.learn(settings, table, progress, folder, resume)
        inside = np.ix_(kept, kept)
        d = len(names)
        self.strengths_ = np.zeros((d, d))
        self.strengths_[inside] = found.strengths
        allowed = np.zeros((d, d), dtype=bool)
        allowed[inside] = found.allowed
        self.threshold_ = found.threshold
        self.adjacency_matrix_ = chosen_graph(self.strengths_, allowed, found.threshold, must)
        self.thresholded_ = thresholded(self.strengths_, found.threshold)
        self.thresholded_is_dag_ = is_acyclic(self.thresholded_)
        self.undirected_ = np.zeros((d, d), dtype=bool)
        self.history_ = found.history
        self.sent_ = {
            name: {"messages": sent["messages"], "bytes_sent": sent["bytes"]} for name, sent in found.sent.items()
        }
        self.search_ = found.search
        """Which of the searches was kept, counted from 0."""
        self.noise_ = found.noise
        """What noise there was, and what it guarantees or not; None: there was none."""
        numeric = int((~table.binary).sum())
        scale = math.pi / SQUARES.get(settings.likelihood, 0.5)  # of the normal density that the loss belongs to
        self.held_out_log_likelihood_ = -found.held_out_loss - 0.5 * math.log(scale) * numeric
        """Of a held-out row, on average; columns as they were fitted, standardised."""
        self.computing_ = computing(settings, tuple(held)) if kind == "federated" else None
        """Who could open columns together, in the strong mode."""
        self.confidence_: Array | None = None
        if self.bootstrap:
            graphs = self._resampled(settings, table, tell, folder, resume, watch)
            self.confidence_ = np.zeros((d, d))
            self.confidence_[inside] = graphs.mean(axis=0)
        self.rule_ = rule_in_words(settings.threshold, found.strengths, found.allowed, found.threshold)
        """Where the threshold came from, in words."""
        self.figures_ = np.full((d, len(FIGURES)), np.nan)
        """Of each column on held-out rows: `diagnostics.FIGURES`; nan where nobody could say."""
        if found.figures is not None:
            self.figures_[kept] = found.figures
        unsound = published_warnings(settings) if settings.protocol == "literal" else ()
        self.warnings_ = (*unsound, *table.warnings, *warnings(self.figures_, self.adjacency_matrix_))
        """What speaks against the graph, in words."""
        apart = self._resamples_apart or not self.bootstrap
        protected = protection_in_words(settings, kind, len(held), found.noise, apart)
        before = [*profile_note(self.profile), *old_names(getattr(self, name) for name in GROUPS)]
        renamed = dict.fromkeys([*self._notes, *before])
        chosen = found.notes or choice_in_words(settings, found.search)
        self.notes_ = (*renamed, *data.notes, *notes, *chosen, f"vfedcd {SUITS}", *protected)
        return self

    def _started(
        self, settings: Settings, table: PreparedTable, given: Mask | None, kept: Sequence[int]
    ) -> tuple[Settings, PreparedTable]:
        """The table with the graph to start from. Between parties only one search is made then."""
        if self.engine_ == "federated":
            if given is None:
                raise InputError(
                    "start: between parties it takes a graph whose sums were opened already; take method 'auto' with "
                    "networks = true, or give fit(start_graph=...)"
                )
            if settings.strong:
                raise InputError("start: the strong mode has none; leave it out")
            settings = settings.model_copy(update={"searches": ()})
        if given is not None:
            return settings, replace(table, start=given[np.ix_(kept, kept)])
        from veracausa.discovery.methods.vfedcd.start import moments_graph

        known = {"required": table.required, "forbidden": table.forbidden, "seed": self.seed}
        limits = {"time_limit": self.time_limit, "timer": self.timer}
        graph, stands = moments_graph(table.train, table.names, **known, **limits)
        return settings, replace(table, start=graph, start_stands=stands)

    def revealing(self) -> Literal["all", "own"]:
        return self.settings().reveal

    def _prepared(
        self,
        settings: Settings,
        values: Array,
        names: tuple[str, ...],
        must: Mask,
        never: Mask,
        nominal: Sequence[str] = (),
    ) -> tuple[PreparedTable, list[int], tuple[str, ...]]:
        """Rows to train on and held-out rows, the columns that take part, and what was done."""
        table, notes = without_missing(values, names, self.missing, nominal)
        apart = round(settings.held_out * len(table))
        train_rows = len(table) - apart
        if train_rows < 2 or (settings.held_out and not apart):
            raise InputError(f"X: {len(table)} rows are too few to learn from and hold some out; give more")
        order = np.random.default_rng(derive(self.seed, "discovery", "kept apart")).permutation(len(table))
        ready = prepare(
            table[order],
            names,
            standardise=self.standardise,
            constant=self.constant,
            collinear=self.collinear,
            train_rows=train_rows,
            nominal=nominal,
        )
        fitted = ready.values.copy()
        two = np.array([len(np.unique(column)) == 2 for column in ready.values.T])
        binary = two & (settings.bernoulli and settings.likelihood not in SQUARES)
        odds = fitted[:, binary]
        fitted[:, binary] = odds > (odds.min(axis=0) + odds.max(axis=0)) / 2
        chances = [name for name, chance in zip(ready.names, binary, strict=True) if chance]
        numbers = [name for name, number in zip(ready.names, two & ~binary, strict=True) if number]
        said = (*two_values(chances, "probabilities"), *two_values(numbers, "numbers"))
        few = (f"{len(table)} rows are few: expect edges to be missed",) if FEW_ROWS <= len(table) < MANY else ()
        inside = np.ix_(ready.kept, ready.kept)
        both = fitted[:train_rows], fitted[train_rows:]
        mixed = (TWO_VALUES,) if binary.any() and not two.all() else ()
        speaks_against = (*ready.warnings, *arbitrary_order(ready.nominal), *mixed)
        return (
            PreparedTable(*both, ready.names, binary, must[inside], never[inside], speaks_against),
            list(ready.kept),
            (*notes, *ready.notes, *said, *few),
        )

    def engine_for(self, count: int, given: bool) -> str:
        """How a fit of so many parties is run; says what can not be."""
        engine = self.engine or ("federated" if given and count > 1 else "floating")
        if engine == "federated" and count < 2:
            raise InputError("engine: 'federated' is for two parties or more; name them, or take 'floating'")
        if engine == "federated" and self.time_limit is not None:
            raise InputError(
                "time_limit: parties have no common clock and must all end at the same step; take fewer epochs, "
                "or engine 'floating'"
            )
        encryption = self.settings().encryption
        if engine == "floating" and encryption != "none":
            raise InputError(
                f"encryption: {encryption!r} hides what parties send, and in one place nobody sends anything; "
                "name the parties, with engine 'federated'"
            )
        if self.bootstrap < 0:
            raise InputError(f"bootstrap: {self.bootstrap} resamples can not be drawn; give 0 or more")
        return engine

    def _engine(self, settings: Settings, table: PreparedTable, tell: Observer, watch: Watch | None) -> Engine:
        if self.engine_ == "floating":
            rng = np.random.default_rng(derive(self.seed, "discovery", "floating"))
            return Centralized(rng, clock(self.time_limit, self.timer))
        from veracausa.discovery.engines.launch import Federation

        # In the order in which a party names its columns: where they stand in a table decides nothing.
        at = {name: position for position, name in enumerate(table.names)}
        left = {party: [at[name] for name in own if name in at] for party, own in self.parties_.items()}
        left = {party: positions for party, positions in left.items() if positions}
        if len(left) < 2:
            raise InputError(
                "parties: only one of them has a column that varies; give columns that do, to two at least"
            )
        return Federation(left, None if needs_secrets(settings) else self.seed, self.link, tell, watch)

    def _resampled(
        self,
        settings: Settings,
        table: PreparedTable,
        tell: Observer,
        out: Path | None,
        resume: bool,
        watch: Watch | None,
    ) -> Mask:
        """(resamples, d, d): the graph of each resample."""
        rng = np.random.default_rng(derive(self.seed, "discovery", "bootstrap"))

        def progress(share: float, done: int = 0, of: int = 1) -> None:
            tell({"event": "progress", "what": "resamples", "share": (done + share) / of})

        if not self._resamples_apart:
            up = clock(self.time_limit, self.timer)
            file = None if out is None else out / RESAMPLES_STATE
            return bootstrap_graphs(settings, table, self.bootstrap, rng, progress, up, file, resume)
        graphs = []
        for number in range(self.bootstrap):
            one = table.resampled(rng)
            share = functools.partial(progress, done=number, of=self.bootstrap)
            graphs.append(self._engine(settings, one, tell, watch).learn(settings, one, share).graph(table.required))
        return np.stack(graphs)

    @property
    def _resamples_apart(self) -> bool:
        """Whether parties train resamples, too: where it is asked for, and wherever their columns are protected."""
        return self.engine == "federated" or (self.engine_ == "federated" and needs_secrets(self.settings()))
