"""How likely rows are under a graph where each effect is any smooth function of its causes together, and noise.

The function is a Gaussian process, so that no form is chosen beforehand, and it is integrated out. What stays is the
evidence: the product of how likely each row is given those before it. It needs no held-out row, and a cause that tells
nothing does not raise it. Graphs were compared so by Friedman and Nachman (2000). The processes here have inducing
points (Titsias 2009), so that the figure is a lower bound.

All of it needs rows in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.graphs import reaches

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 2000
"""Of more rows than this a sample counts."""
INDUCING = 80
STEPS = 12
"""Steps in which the scales of a process are fitted."""
JITTER = 1e-6
FAR = 6.0
"""Values further out than so many deviations are moved there."""
FITS = 700
"""Regressions that one climb may fit."""
GAIN = 1e-6
SURE = 3.0
"""Nats by which an edge's direction must be likelier than the other one to be told."""
LENGTH, SIGNAL, SLOPE, NOISE = (0.05, 50.0), (0.01, 10.0), (1e-3, 10.0), (0.01, 3.0)
"""Between what the scales of a process are looked for."""


class RowEvidence:
    """The evidence of a column given its causes, in nats, kept for every set of causes that was asked for."""

    def __init__(self, values: Array, rng: np.random.Generator) -> None:
        import torch

        chosen = np.sort(rng.permutation(len(values))[:ROWS])
        rows = values[chosen]
        rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
        self.table = torch.from_numpy(np.clip(rows, -FAR, FAR))
        self.rows, self.d = self.table.shape
        self.inducing = torch.from_numpy(rng.permutation(self.rows)[:INDUCING])
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
        """The largest bound, less half a logarithm of the rows for each cause."""
        import torch
        from scipy.optimize import minimize

        column = self.table[:, effect]
        if not causes:
            self.noise[effect, causes] = 1.0
            return float(-0.5 * self.rows * np.log(2 * np.pi * np.e * float(column.var(unbiased=False))))
        inputs, p = self.table[:, list(causes)], len(causes)
        start = np.log([1.5 * np.sqrt(p)] * p + [1.0] + [0.3] * p + [0.5])
        bounds = np.log([LENGTH] * p + [SIGNAL] + [SLOPE] * p + [NOISE])

        def loss(at: Array) -> tuple[float, Array]:
            scales = torch.tensor(at, requires_grad=True)
            value = -self._bound(scales, inputs, column)
            (slopes,) = torch.autograd.grad(value, scales)
            return float(value.detach()), slopes.numpy()

        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
        self.noise[effect, causes] = min(1.0, float(np.exp(2 * found.x[-1])))
        return float(-found.fun) - 0.5 * p * float(np.log(self.rows))

    def _bound(self, logarithms: Tensor, inputs: Tensor, column: Tensor) -> Tensor:
        """Titsias' bound for a smooth function of all causes and straight lines of each, whatever their size."""
        import torch

        p, n = inputs.shape[1], self.rows
        scales = logarithms.exp()
        lengths, signal, slopes, noise = scales[:p], scales[p] ** 2, scales[p + 1 : -1] ** 2, scales[-1] ** 2

        def kernel(first: Tensor, second: Tensor) -> Tensor:
            apart = torch.cdist(first / lengths, second / lengths, compute_mode="use_mm_for_euclid_dist")
            return signal * torch.exp(-0.5 * apart**2) + (first * slopes) @ second.T

        points = inputs[self.inducing]
        inside = kernel(points, points) + JITTER * (signal + slopes.sum() + 1) * torch.eye(len(points)).double()
        root = torch.linalg.cholesky(inside)
        part = torch.linalg.solve_triangular(root, kernel(points, inputs), upper=False) / noise.sqrt()
        whole = torch.linalg.cholesky(part @ part.T + torch.eye(len(points)).double())
        told = torch.linalg.solve_triangular(whole, (part @ column)[:, None], upper=False) / noise.sqrt()
        variances = n * signal + (inputs**2 * slopes).sum()
        likely = -0.5 * n * torch.log(2 * np.pi * noise) - torch.log(whole.diagonal()).sum()
        wrong = (column @ column) / noise - (told**2).sum() + variances / noise - (part**2).sum()
        bound: Tensor = likely - 0.5 * wrong
        return bound


def climbed(
    evidence: RowEvidence,
    start: Mask,
    may: Mask,
    required: Mask,
    near: Mask,
    time_is_up: Callable[[], bool] = lambda: False,
    progress: Callable[[float], None] = lambda share: None,
) -> Mask:
    """The graph after single edges were turned, taken out or added, each where that raises the evidence most.

    Edges are added between columns that are `near`. Turns come first, so that few regressions are fitted for nothing.
    """
    graph = start.copy()
    before = len(evidence.known)
    for adds in (False, True):
        while not time_is_up():
            fitted = len(evidence.known) - before
            progress(min(1.0, fitted / FITS))
            if fitted >= FITS:
                return graph
            better = _best_move(evidence, graph, may, required, near if adds else np.zeros_like(near))
            if better is None:
                break
            graph = better
    return graph


def _best_move(evidence: RowEvidence, graph: Mask, may: Mask, required: Mask, near: Mask) -> Mask | None:
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


def _gain(evidence: RowEvidence, graph: Mask, other: Mask) -> float:
    changed = np.flatnonzero((graph != other).any(axis=0)).tolist()
    return sum(
        evidence(effect, np.flatnonzero(other[:, effect])) - evidence(effect, np.flatnonzero(graph[:, effect]))
        for effect in changed
    )


def turned_margins(evidence: RowEvidence, graph: Mask, may: Mask, required: Mask) -> Array:
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
