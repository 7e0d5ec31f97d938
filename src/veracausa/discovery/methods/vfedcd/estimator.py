"""VFedCD as an estimator: one causal graph over columns that one party holds, or several."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import ValidationError

from veracausa.arrays import Array, Mask
from veracausa.data.causal.parties import owners
from veracausa.discovery.base import CausalDiscovery, as_table, clock, column_named, edge_constraints
from veracausa.discovery.bootstrap import Rows, bootstrap_graphs, chosen_graph
from veracausa.discovery.columns import prepare, without_missing
from veracausa.discovery.engines.launch import EngineResult, federated, floating
from veracausa.discovery.graphs import edge_rows, is_acyclic, revealed, thresholded
from veracausa.discovery.methods.vfedcd.decoders import Likelihood
from veracausa.discovery.methods.vfedcd.diagnostics import FIGURES, SUITS, protection_in_words, warnings
from veracausa.discovery.methods.vfedcd.searches import choice_in_words
from veracausa.discovery.methods.vfedcd.settings import Acyclicity, Settings
from veracausa.discovery.methods.vfedcd.structure import rule_in_words
from veracausa.discovery.privacy.check import chosen
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.seeding import derive

if TYPE_CHECKING:
    import networkx

    from veracausa.discovery.engines.shares.run import Watch


ONE_PARTY = "party"
"""What the only party is called."""
GRAPH_STATE, RESAMPLES_STATE = "graph.safetensors", "resamples.safetensors"
"""The checkpoints of a fit in one place."""
MANY = 200
"""Fewer rows than this are said to be few."""


@dataclass(kw_only=True, eq=False, repr=False)
class VFedCD(CausalDiscovery):
    """Causal discovery by one small network an attribute, trained under sparsity and acyclicity, then cut to a DAG.

    Settings that are None come from the profile: `recommended`, or `paper` for the model as published. The engine
    `federated` runs every party and the validator as programs that exchange messages, `floating` the same model in one
    place; by default the first where `fit` is given parties.
    """

    profile: str = "recommended"
    width: int | None = None
    depth: int | None = None
    activation: Literal["tanh", "sigmoid", "leaky_relu"] | None = None
    likelihood: Likelihood | None = None
    bernoulli: bool | None = None
    rate: float | None = None
    batch: int | None = None
    epochs: int | None = None
    refit_epochs: int | None = None
    growth: float | None = None
    ceiling: float | None = None
    halt: float | None = None
    acyclicity: Acyclicity | None = None
    sparsity: Literal["group_lasso", "l1", "l2"] | None = None
    sparsity_weight: float | None = None
    pivot: float | None = None
    structure_every: int | Literal["epoch"] | None = None
    threshold: float | Literal["held_out", "held_out_graphs", "mixture"] | None = None  # type: ignore[assignment]
    edge_worth: float | None = None
    candidates: int | None = None
    held_out: float | None = None
    searches: Sequence[Mapping[str, Any]] | None = None
    """Several searches, each a mapping of what it has of its own, of which the likeliest is kept; []: one."""
    open_parts: bool | None = None
    """Whether a party opens what each other one adds to its features; else only the sum over all others."""
    bottleneck: int | None = None
    """So many numbers of a target attribute are opened of a row, in place of `width`."""
    row_noise: float | None = None
    """The deviation of the noise that the others add to every number that is opened of a row."""
    engine: Literal["floating", "federated"] | None = None
    encryption: str = "none"
    link: Literal["threads", "processes"] = "threads"
    validator: Literal["M1", "M2"] = "M2"
    """What it is sent to see the graph: the norm of every edge's weights, or (M1) the weights themselves."""
    laplace: float | None = None
    """ε of the published noise on strengths: a heuristic that gives no guarantee."""
    laplace_rule: Literal["published", "sum"] = "sum"
    """published: at the validator, in its acyclicity term. sum: in parts on shares, so that nobody knows it."""
    local_steps: int = 1
    """Updates of a party's own decoders for one exchange."""
    shares: Literal["two", "all"] = "two"
    """Who holds a block's weights: its source and its target, or (the published way, for comparison) every party."""
    prepare: Literal["inline", "process"] = "inline"
    """Where triples are made ahead: between the steps, or in a process of its own."""
    strong: bool = False
    """Features, decoders and gradients stay on shares of all parties, and the validator deals: of rows only sums are
    opened. Slower, with a cubic activation."""
    bootstrap: int = 0
    """So many resamples of the rows, for the confidence of edges."""
    reveal: Literal["all", "own"] = "all"
    """What a party is told: the whole graph, or the edges that touch its own attributes."""
    epsilon: float | None = None
    """Differential privacy of one row against the validator and readers of the graph, for the whole fit; not against
    the parties. Needs `held_out` = 0 and a `threshold` that is a number or "mixture"."""
    delta: float = 1e-5
    clip: float = 20.0
    """With `epsilon`: the most that a row adds to the gradient of one target's network."""
    row_limit: float = 1.5
    """With `epsilon`: the largest root mean square of a row's columns, party by party."""

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
    ) -> Self:
        """Learn from a pandas or polars frame or an array; `parties` maps each party to its columns.

        A fit keeps its checkpoints in `out`, a federated one its ledgers too, and goes on from them with `resume`.
        `watch` is shown every party of a federated fit before it runs.
        """
        settings, tell = self.settings(), observer or (lambda event: None)
        values, names = as_table(X)
        held = _held(parties, names)
        engine = self.engine_for(len(held), parties is not None)
        if engine == "floating" and (settings.bottleneck or settings.row_noise):
            raise InputError("bottleneck, row_noise: they are about what parties open to each other; name the parties")
        noise = chosen(self.get_params(), engine)
        must, never = edge_constraints(self.required, self.forbidden, names)
        rows, kept, notes = self._prepared(settings, values, names, must, never)
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        self.parties_: dict[str, tuple[str, ...]] = held
        self.engine_: str = engine

        # In the order in which a party names its columns: where they stand in a table decides nothing.
        at = {name: position for position, name in enumerate(rows.names)}
        left = {party: [at[name] for name in own if name in at] for party, own in held.items()}
        left = {party: positions for party, positions in left.items() if positions}
        if engine == "federated" and len(left) < 2:
            raise InputError(
                "parties: only one of them has a column that varies; give columns that do, to two at least"
            )

        def learn(rows: Rows, what: str, share: Callable[[float], float] = lambda part: part) -> EngineResult:
            def progress(part: float) -> None:
                tell({"event": "progress", "what": what, "share": share(part)})

            folder = None if out is None or what != "graph" else Path(out)
            if engine == "federated":
                named = ("link", "encryption", "validator", "local_steps", "shares", "prepare")
                how = {name: getattr(self, name) for name in named} | noise | {"watch": watch}
                how |= {"tell": tell, "strong": self.strong}
                return federated(settings, rows, left, progress, folder, resume, **how)
            rng = np.random.default_rng(derive(self.seed, "discovery", "floating"))
            file = folder and folder / GRAPH_STATE
            return floating(settings, rows, rng, progress, clock(self.time_limit, self.timer), file, resume)

        found = learn(rows, "graph")
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
        self.history_, self.sent_ = found.history, found.sent
        self.search_ = found.search
        """Which of the searches was kept, counted from 0."""
        self.noise_ = found.noise
        """What noise there was, and what it guarantees or not; None: there was none."""
        numeric = int((~rows.binary).sum())
        self.held_out_log_likelihood_ = -found.held_out_loss - 0.5 * math.log(2 * math.pi) * numeric
        """Of a row kept apart, on average; columns as they were fitted, standardised."""
        self.confidence_: Array | None = None
        if self.bootstrap:
            file = None if out is None else Path(out) / RESAMPLES_STATE
            graphs = self._resampled(settings, rows, learn, tell, file, resume)
            self.confidence_ = np.zeros((d, d))
            self.confidence_[inside] = graphs.mean(axis=0)
        self.rule_ = rule_in_words(settings.threshold, found.strengths, found.allowed, found.threshold)
        """Where the threshold came from, in words."""
        self.figures_ = np.full((d, len(FIGURES)), np.nan)
        """Of each column on rows kept apart: `diagnostics.FIGURES`; nan where nobody could say."""
        if found.figures is not None:
            self.figures_[kept] = found.figures
        self.warnings_ = warnings(self.figures_, self.adjacency_matrix_)
        """What speaks against the graph, in words."""
        chosen_of = choice_in_words(settings, found.search)
        apart = self._resamples_apart or not self.bootstrap
        protected = protection_in_words(self, engine, len(held), apart)
        self.notes_ = (*notes, *chosen_of, f"vfedcd {SUITS}", *protected)
        return self

    def settings(self) -> Settings:
        """The settings with those of the profile filled in."""
        given = {name: value for name in Settings.model_fields if (value := getattr(self, name)) is not None}
        if self.strong or self.epsilon is not None:
            given.setdefault("searches", [])  # a profile's several are for where they can be had
        try:
            return Settings(**given)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            parts = problem["loc"] if problem["loc"][:1] == ("searches",) else problem["loc"][:1]
            place = ".".join(str(part) for part in parts)
            message = problem["msg"].removeprefix("Value error, ")
            raise InputError(f"vfedcd: {place}{': ' if place else ''}{message}") from None

    @property
    def edges_(self) -> list[dict[str, Any]]:
        """The edges, strongest first: cause, effect, strength, confidence, and whose columns they are."""
        names = [str(name) for name in self.feature_names_in_]
        return edge_rows(self.adjacency_matrix_, self.strengths_, self.confidence_, names, self.parties_)

    @property
    def party_edges_(self) -> dict[str, list[dict[str, Any]]]:
        """What each party is told of the graph, by `reveal`."""
        return revealed(self.edges_, tuple(self.parties_), self.reveal)

    @property
    def causal_graph_(self) -> networkx.DiGraph:
        """The DAG with the columns' names; a node has its `party`, an edge its `strength` and its `confidence`."""
        graph = super().causal_graph_
        for party, columns in self.parties_.items():
            for column in columns:
                graph.nodes[column]["party"] = party
        if self.confidence_ is not None:
            for row in self.edges_:
                graph.edges[row["cause"], row["effect"]]["confidence"] = row["confidence"]
        return graph

    def _prepared(
        self, settings: Settings, values: Array, names: tuple[str, ...], must: Mask, never: Mask
    ) -> tuple[Rows, list[int], tuple[str, ...]]:
        """Rows to train on and rows kept apart, the columns that take part, and what was done."""
        table, notes = without_missing(values, names, self.missing)
        apart = round(settings.held_out * len(table))
        train_rows = len(table) - apart
        if train_rows < 2 or (settings.held_out and not apart):
            raise InputError(f"X: {len(table)} rows are too few to learn from and keep some apart; give more")
        order = np.random.default_rng(derive(self.seed, "discovery", "kept apart")).permutation(len(table))
        ready = prepare(
            table[order],
            names,
            standardise=self.standardise,
            constant=self.constant,
            collinear=self.collinear,
            train_rows=train_rows,
        )
        fitted = ready.values.copy()
        two = np.array([len(np.unique(column)) == 2 for column in ready.values.T])
        binary = two & (settings.bernoulli and settings.likelihood != "mse")
        odds = fitted[:, binary]
        fitted[:, binary] = odds > (odds.min(axis=0) + odds.max(axis=0)) / 2
        chances = {f"{name}: discrete, 2 different values, fitted as a number" for name in ready.names}
        said = (
            note.replace("discrete, 2 different values, fitted as a number", "two values, fitted as a probability")
            if note in chances and binary[ready.names.index(note.split(": discrete")[0])]
            else note
            for note in ready.notes
        )
        few = (f"{len(table)} rows are few: expect edges to be missed",) if len(table) < MANY else ()
        inside = np.ix_(ready.kept, ready.kept)
        rows = Rows(fitted[:train_rows], fitted[train_rows:], ready.names, binary, must[inside], never[inside])
        return rows, list(ready.kept), (*notes, *said, *few)

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
        if engine == "floating" and self.encryption != "none":
            raise InputError(
                f"encryption: {self.encryption!r} hides what parties send, and in one place nobody sends anything; "
                "name the parties, with engine 'federated'"
            )
        if self.reveal not in ("all", "own"):
            raise InputError(f"reveal: {self.reveal!r} is neither 'all' nor 'own'")
        if self.bootstrap < 0:
            raise InputError(f"bootstrap: {self.bootstrap} resamples can not be drawn; give 0 or more")
        return engine

    def _resampled(
        self,
        settings: Settings,
        rows: Rows,
        learn: Callable[..., EngineResult],
        tell: Observer,
        file: Path | None,
        resume: bool,
    ) -> Mask:
        rng = np.random.default_rng(derive(self.seed, "discovery", "bootstrap"))
        if not self._resamples_apart:

            def progress(part: float) -> None:
                tell({"event": "progress", "what": "resamples", "share": part})

            up = clock(self.time_limit, self.timer)
            return bootstrap_graphs(settings, rows, self.bootstrap, rng, progress, up, file, resume)
        graphs = []
        for number in range(self.bootstrap):
            found = learn(rows.resampled(rng), "resamples", lambda part, n=number: (n + part) / self.bootstrap)
            graphs.append(chosen_graph(found.strengths, found.allowed, found.threshold, rows.required))
        return np.stack(graphs)

    @property
    def _resamples_apart(self) -> bool:
        """Whether parties train resamples, too: where it is asked for, and wherever their columns are protected."""
        return self.engine == "federated" or (
            self.engine_ == "federated" and (self.strong or self.encryption != "none")
        )


def _held(parties: Mapping[str, Sequence[Any]] | None, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Each party's columns by name; every column has one party."""
    if parties is None:
        return {ONE_PARTY: names}
    for party, columns in parties.items():
        if not re.fullmatch(r"\w[\w .-]*", str(party)):
            raise InputError(f"parties: {party!r} is no name for a party; use letters, digits, '_', '-' and '.'")
        if isinstance(columns, str) or not len(columns):
            raise InputError(f"parties: {party!r} needs a list of columns, one at least")
    held = {str(party): tuple(column_named(column, names) for column in columns) for party, columns in parties.items()}
    owners(held, names)
    return held
