"""The contract of every method of causal discovery: scikit-learn's, with pgmpy's names for what a fit leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator

from veracausa.arrays import Array, Mask
from veracausa.data.causal import as_adjacency, edges_between
from veracausa.data.causal.columns import (
    Collinear,
    Missing,
    PreparedColumns,
    Unusable,
    arbitrary_order,
    prepare,
    two_values,
)
from veracausa.data.causal.frames import as_causal
from veracausa.discovery.export import GraphExports, with_effects
from veracausa.discovery.graphs import constraints, cut, is_acyclic, smallest_acyclic_threshold
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.metrics.graphs import graph_scores
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import networkx

    from veracausa.discovery.residual_tests import ResidualTest


Threshold = float | Literal["acyclic"]
Timer = Literal["wall", "processor"]


@dataclass(kw_only=True, eq=False, repr=False)
class CausalDiscovery(BaseEstimator, GraphExports):  # type: ignore[misc]
    """Learns a DAG over the columns of a table. A method subclasses it as a dataclass and overrides `learn`."""

    threshold: Threshold = 0.3
    """An edge weaker than this is left out; `acyclic`: the least threshold that leaves no cycle."""
    required: Any = None
    """Edges the graph must have: pairs of column names, or a (d, d) array."""
    forbidden: Any = None
    standardise: bool = True
    missing: Missing = "median"
    constant: Unusable = "drop"
    collinear: Collinear = "keep"
    time_limit: float | None = None
    """Seconds after which a fit ends with what it has; then the same seed may not give the same graph."""
    timer: Timer = "wall"
    """What these seconds are: those that pass, or those that this process computes, for a machine that is busy."""
    seed: int = 0

    fast_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings with which a small table takes about a second: what `check_method` fits with."""
    federated: ClassVar[bool] = False
    """Whether `fit` also takes `parties`, `observer`, `out` and `resume`."""

    # sklearn reads the parameters from __init__, which the dataclass writes; what a fit leaves ends in an underscore.

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a pandas or polars frame or an array, one row a case; `y` is ignored."""
        data = as_causal(X)
        names = data.names
        must, never = constraints(
            len(names), as_edges(self.required, names, "required"), as_edges(self.forbidden, names, "forbidden")
        )
        ready = prepare(
            data.values,
            names,
            standardise=self.standardise,
            missing=self.missing,
            constant=self.constant,
            collinear=self.collinear,
            nominal=data.nominal,
        )
        self.history_: list[dict[str, float]] = []
        two = [name for name, binary in zip(ready.names, ready.binary, strict=True) if binary]
        self.notes_: tuple[str, ...] = (*data.notes, *ready.notes, *two_values(two, "numbers"))
        self.warnings_: tuple[str, ...] = (*ready.warnings, *arbitrary_order(ready.nominal))
        """What speaks against the graph, in words."""
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        self._open: Mask | None = None
        strengths = self.learn(ready, clock(self.time_limit, self.timer))
        inside = np.ix_(ready.kept, ready.kept)
        self.strengths_ = np.zeros((len(names), len(names)))
        self.strengths_[inside] = np.abs(strengths)
        np.fill_diagonal(self.strengths_, 0.0)
        least = smallest_acyclic_threshold(self.strengths_) if self.threshold == "acyclic" else self.threshold
        self.threshold_ = least
        """The threshold that was used."""
        result = cut(self.strengths_, least, must, never)
        self.adjacency_matrix_: Mask = result.adjacency
        self.thresholded_: Mask = result.before
        """The graph before cycles were broken, and whether it was a DAG."""
        self.thresholded_is_dag_ = result.was_acyclic
        self.undirected_: Mask = np.zeros((len(names), len(names)), dtype=bool)
        """(d, d), symmetric: the edges of the graph whose direction the method does not tell."""
        if self._open is not None:
            known = must | never
            self.undirected_[inside] = self._open | self._open.T
            self.undirected_ &= (result.adjacency | result.adjacency.T) & ~(known | known.T)
        return self

    @classmethod
    def job_options(cls) -> dict[str, tuple[Any, Any]]:
        """The type and the default of every setting that a job may give."""
        hints = get_type_hints(cls)
        return {field.name: (hints[field.name], field.default) for field in fields(cls)}

    def job_settings(self) -> dict[str, Any]:
        """Every setting as a job would write it down, those of a profile among them."""
        return {name: value for name, value in self.get_params(deep=False).items() if value is not None}

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        """The strength of every edge, (d, d) with row = cause; to be overridden.

        A method that can not tell the direction of some edges sets `self._open`, (d, d), True at these.
        """
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "adjacency_matrix_")

    @property
    def causal_graph_(self) -> networkx.DiGraph:
        """The DAG with the columns' names; an edge's `strength` is the method's own measure.

        Where the method tells effects, an edge has them, too. One whose direction is not told has `directed = "no"`.
        """
        import networkx
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        graph = networkx.DiGraph()
        names = [str(name) for name in self.feature_names_in_]
        graph.add_nodes_from(names)
        for cause, effect in np.argwhere(self.adjacency_matrix_):
            graph.add_edge(names[cause], names[effect], strength=float(self.strengths_[cause, effect]))
        open_ends = np.argwhere(getattr(self, "undirected_", np.zeros((0, 0))))
        undirected = [(names[one], names[other]) for one, other in open_ends]
        return with_effects(graph, undirected, getattr(self, "effects_", ()))

    def exported_graph(self) -> networkx.DiGraph:
        return self.causal_graph_

    def score(self, true_graph: Any, metric: str = "shd") -> float:
        """How far the learned graph is from the true one: `shd` (less is better), `f1`, `skeleton_f1` and others.

        The true graph is a matrix, a networkx graph, or pairs of names.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        truth = as_edges(true_graph, tuple(str(name) for name in self.feature_names_in_), "true_graph")
        if truth is None:
            raise InputError("true_graph: is missing; give a matrix, a graph or pairs of column names")
        row = graph_scores(truth, self.adjacency_matrix_)
        if metric not in row:
            raise InputError(f"metric = {metric!r}: no such metric{did_you_mean(metric, row)}")
        return float(row[metric])

    def residual_tests(
        self,
        X: Any,
        time_is_up: Callable[[], bool] = lambda: False,
        progress: ProgressCallback = lambda share: None,
    ) -> list[ResidualTest]:
        """Whether each column's residuals depend on its causes in the graph, on rows that lie in one place."""
        from sklearn.utils.validation import check_is_fitted

        from veracausa.discovery.residual_tests import residual_tests

        check_is_fitted(self)
        data = as_causal(X)
        nominal = [
            name for name in data.names if name in {*data.nominal, *map(str, getattr(self, "nominal", None) or ())}
        ]
        return residual_tests(data.values, data.names, self.adjacency_matrix_, self.seed, nominal, time_is_up, progress)

    def _log(self, **figures: float) -> None:
        self.history_.append({name: float(figure) for name, figure in figures.items()})


def as_table(X: Any) -> tuple[Array, tuple[str, ...]]:
    """Values and column names of causal data, a frame or an array; an array's columns are x0, x1, ..."""
    data = as_causal(X)
    return data.values, data.names


def as_edges(edges: Any, names: Sequence[str], what: str) -> Mask | None:
    """Edges as a (d, d) matrix: from such an array or frame, a networkx graph, or pairs of names or positions."""
    if edges is None:
        return None
    if hasattr(edges, "edges"):
        edges = list(edges.edges())
    elif isinstance(edges, Mapping):
        edges = [(cause, effect) for cause, effects in edges.items() for effect in effects]
    if hasattr(edges, "to_numpy"):
        edges = edges.to_numpy()
    if isinstance(edges, np.ndarray):
        matrix = as_adjacency(edges, what)
        if len(matrix) != len(names):
            raise InputError(f"{what}: shape {matrix.shape} for {len(names)} columns; give one row a column")
        return matrix
    try:
        pairs = [(column_named(cause, names), column_named(effect, names)) for cause, effect in edges]
    except (TypeError, ValueError):
        raise InputError(f"{what}: edges are pairs (cause, effect) of column names, or an array") from None
    return edges_between(pairs, names, what)


def column_named(end: Any, names: Sequence[str]) -> str:
    if isinstance(end, int | np.integer) and str(end) not in names and 0 <= end < len(names):
        return names[int(end)]
    return str(end)


def clock(limit: float | None, timer: Timer = "wall") -> Callable[[], bool]:
    """A question that becomes true after so many seconds."""
    now = time.monotonic if timer == "wall" else time.process_time
    end = math.inf if limit is None else now() + limit
    return lambda: now() > end


def edge_constraints(required: Any, forbidden: Any, names: Sequence[str]) -> tuple[Mask, Mask]:
    """Both as (d, d) booleans; an edge in both, and required edges in a circle, are refused by name."""
    none = np.zeros((len(names), len(names)), dtype=bool)
    must, never = (
        none if edges is None else edges
        for edges in (as_edges(required, names, "required"), as_edges(forbidden, names, "forbidden"))
    )
    for cause, effect in np.argwhere(must & never):
        raise InputError(
            f"edge {names[cause]} -> {names[effect]} is required and forbidden; remove it from one of the two"
        )
    if not is_acyclic(must):
        circle = " -> ".join(names[at] for at in _circle(must))
        raise InputError(f"required: {circle} is a cycle, which no causal graph can hold; remove one of these edges")
    return must, never


def _circle(edges: Mask) -> list[int]:
    """A way back to its own start, in a graph that has one."""
    left = edges.copy()
    while True:  # who has no effect any more lies on no cycle
        ends = np.flatnonzero(left.any(axis=0) & ~left.any(axis=1))
        if not len(ends):
            break
        left[:, ends] = False
    way = [int(np.flatnonzero(left.any(axis=1))[0])]
    while way.count(way[-1]) < 2:
        way.append(int(left[way[-1]].argmax()))
    return way[way.index(way[-1]) :]
