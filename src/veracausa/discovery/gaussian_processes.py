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
CLOSE_INDUCING, CLOSE_STEPS = 200, 25
"""Where residuals are wanted: points that the mean rests on, and steps."""
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
        column = self.table[:, effect]
        if not causes:
            self.noise[effect, causes] = 1.0
            return float(-0.5 * self.rows * np.log(2 * np.pi * np.e * float(column.var(unbiased=False))))
        p = len(causes)
        logarithms, value = fitted_scales(self.table[:, list(causes)], column, self.inducing, STEPS)
        self.noise[effect, causes] = min(1.0, float(np.exp(2 * logarithms[-1])))
        return value - 0.5 * p * float(np.log(self.rows))


def fitted_scales(inputs: Tensor, column: Tensor, inducing: Tensor, steps: int) -> tuple[Array, float]:
    """The logarithms of a process' scales (lengths, signal, slopes, noise) with the largest bound, and that bound."""
    import torch
    from scipy.optimize import minimize

    p = inputs.shape[1]
    start = np.log([1.5 * np.sqrt(p)] * p + [1.0] + [0.3] * p + [0.5])
    bounds = np.log([LENGTH] * p + [SIGNAL] + [SLOPE] * p + [NOISE])

    def loss(at: Array) -> tuple[float, Array]:
        scales = torch.tensor(at, requires_grad=True)
        value = -bound(scales, inputs, column, inducing)
        (slopes,) = torch.autograd.grad(value, scales)
        return float(value.detach()), slopes.numpy()

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return found.x, -float(found.fun)


def kernel(first: Tensor, second: Tensor, logarithms: Tensor) -> Tensor:
    """A smooth function of all causes and straight lines of each."""
    import torch

    p = first.shape[1]
    scales = logarithms.exp()
    lengths, signal, slopes = scales[:p], scales[p] ** 2, scales[p + 1 : -1] ** 2
    apart = torch.cdist(first / lengths, second / lengths, compute_mode="use_mm_for_euclid_dist")
    return signal * torch.exp(-0.5 * apart**2) + (first * slopes) @ second.T


def bound(logarithms: Tensor, inputs: Tensor, column: Tensor, inducing: Tensor) -> Tensor:
    """Titsias' bound for a smooth function of all causes and straight lines of each, whatever their size."""
    import torch

    p, n = inputs.shape[1], len(column)
    scales = logarithms.exp()
    signal, slopes, noise = scales[p] ** 2, scales[p + 1 : -1] ** 2, scales[-1] ** 2
    points = inputs[inducing]
    inside = kernel(points, points, logarithms)
    inside = inside + JITTER * (signal + slopes.sum() + 1) * torch.eye(len(points)).double()
    root = torch.linalg.cholesky(inside)
    part = torch.linalg.solve_triangular(root, kernel(points, inputs, logarithms), upper=False) / noise.sqrt()
    whole = torch.linalg.cholesky(part @ part.T + torch.eye(len(points)).double())
    told = torch.linalg.solve_triangular(whole, (part @ column)[:, None], upper=False) / noise.sqrt()
    variances = n * signal + (inputs**2 * slopes).sum()
    likely = -0.5 * n * torch.log(2 * np.pi * noise) - torch.log(whole.diagonal()).sum()
    wrong = (column @ column) / noise - (told**2).sum() + variances / noise - (part**2).sum()
    value: Tensor = likely - 0.5 * wrong
    return value


def process_residuals(column: Array, inputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """What a process of the inputs (n, p) leaves of a column, in its deviations, and the inputs as it saw them."""
    import torch

    def scaled(rows: Array) -> Tensor:
        moved = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
        return torch.from_numpy(np.clip(moved, -FAR, FAR))

    target, seen = scaled(column), scaled(inputs)
    order = torch.from_numpy(rng.permutation(len(column)))
    scales, _ = fitted_scales(seen, target, order[:INDUCING], CLOSE_STEPS)
    logarithms = torch.from_numpy(scales)
    points, p = seen[order[:CLOSE_INDUCING]], seen.shape[1]
    inside, across = kernel(points, points, logarithms), kernel(points, seen, logarithms)
    signal, slopes, noise = (
        logarithms[p].exp() ** 2,
        (logarithms[p + 1 : -1].exp() ** 2).sum(),
        logarithms[-1].exp() ** 2,
    )
    whole = inside + JITTER * (signal + slopes + 1) * torch.eye(len(points)).double() + across @ across.T / noise
    mean = across.T @ torch.linalg.solve(whole, across @ target) / noise
    return (target - mean).numpy(), seen.numpy()


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
