"""Graphs judged by rows: how likely these are under each column's causes, and a climb to a likelier graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.graphs import reaches

FITS = 700
"""Regressions that one climb may fit."""
GAIN = 1e-6
SURE = 3.0
"""Nats by which an edge's direction must be likelier than the other one to be told."""


class GraphEvidence:
    """The evidence of a column given its causes, in nats, kept for every set of causes that was asked for."""

    def __init__(self, rows: int, d: int) -> None:
        self.rows, self.d = rows, d
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}
        self.noise: dict[tuple[int, tuple[int, ...]], float] = {}
        """The share of a column's variance that these causes leave."""

    def __call__(self, effect: int, causes: Iterable[int]) -> float:
        asked = (effect, tuple(sorted(map(int, causes))))
        if asked not in self.known:
            self.known[asked] = self._fitted(*asked)
        return self.known[asked]

    def of(self, graph: Mask) -> float:
        """The evidence of all columns, a row."""
        return sum(self(effect, np.flatnonzero(graph[:, effect])) for effect in range(self.d)) / self.rows

    def explained(self, graph: Mask) -> Array:
        """(d,): the share of each column's variance that its causes explain."""
        self.of(graph)
        asked = [(effect, tuple(map(int, np.flatnonzero(graph[:, effect])))) for effect in range(self.d)]
        return 1 - np.array([self.noise[one] for one in asked])

    def _fitted(self, effect: int, causes: tuple[int, ...]) -> float:
        """The evidence; also writes down what is left of the column."""
        raise NotImplementedError


def climbed(
    evidence: GraphEvidence,
    start: Mask,
    may: Mask,
    required: Mask,
    near: Mask,
    time_is_up: Callable[[], bool] = lambda: False,
    progress: Callable[[float], None] = lambda share: None,
    fits: int = FITS,
) -> Mask:
    """The graph after single edges were turned, taken out or added, each where that raises the evidence most.

    Edges are added between columns that are `near`. Turns come first, so that few regressions are fitted for nothing.
    There are `fits` of them at most, or few more.
    """
    graph = start.copy()
    before = len(evidence.known)
    for adds in (False, True):
        while not time_is_up():
            fitted = len(evidence.known) - before
            progress(min(1.0, fitted / fits))
            if fitted >= fits:
                return graph
            better = _best_move(evidence, graph, may, required, near if adds else np.zeros_like(near))
            if better is None:
                break
            graph = better
    return graph


def _best_move(evidence: GraphEvidence, graph: Mask, may: Mask, required: Mask, near: Mask) -> Mask | None:
    """The graph after the move that gains most; None: no move gains."""
    best, worth = None, GAIN
    ways = reaches(graph)
    for cause, effect in np.argwhere(graph | near).tolist():
        moves: list[Mask] = []
        if graph[cause, effect]:
            if required[cause, effect]:
                continue
            moves.append(_with(graph, [(cause, effect, False)]))
            turned = _with(graph, [(cause, effect, False), (effect, cause, True)])
            if may[effect, cause] and not reaches(moves[0])[cause, effect]:
                moves.append(turned)
        elif may[cause, effect] and not graph[effect, cause] and not ways[effect, cause]:
            moves.append(_with(graph, [(cause, effect, True)]))
        for move in moves:
            gain = _gain(evidence, graph, move)
            if gain > worth:
                best, worth = move, gain
    return best


def _gain(evidence: GraphEvidence, graph: Mask, other: Mask) -> float:
    changed = np.flatnonzero((graph != other).any(axis=0)).tolist()
    return sum(
        evidence(effect, np.flatnonzero(other[:, effect])) - evidence(effect, np.flatnonzero(graph[:, effect]))
        for effect in changed
    )


def turned_margins(evidence: GraphEvidence, graph: Mask, may: Mask, required: Mask) -> Array:
    """(d, d): by how many nats each edge's graph is likelier than that with the edge turned around.

    Where that would close a cycle, the other edges on it decide the direction, too, and the edge is compared with none
    at all. inf: it is known.
    """
    margins = np.zeros(graph.shape)
    for cause, effect in np.argwhere(graph).tolist():
        if required[cause, effect] or not may[effect, cause]:
            margins[cause, effect] = np.inf
            continue
        other = _with(graph, [(cause, effect, False)])
        if not reaches(other)[cause, effect]:
            other[effect, cause] = True
        margins[cause, effect] = -_gain(evidence, graph, other)
    return margins


def near_columns(graphs: Iterable[Mask]) -> Mask:
    """(d, d): columns that are joined in a graph, or have a neighbour in common."""
    joined = np.zeros_like(next(iter(graphs := list(graphs))))
    for graph in graphs:
        joined |= graph | graph.T
    counts = joined.astype(float)
    near: Mask = joined | (counts @ counts > 0)
    np.fill_diagonal(near, False)
    return near


def _with(graph: Mask, edges: list[tuple[int, int, bool]]) -> Mask:
    changed = graph.copy()
    for cause, effect, there in edges:
        changed[cause, effect] = there
    return changed
