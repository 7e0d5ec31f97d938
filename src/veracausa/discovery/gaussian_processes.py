"""How likely rows are under a graph where each effect is any smooth function of its causes together, and noise.

The function is a Gaussian process, so that no form is chosen beforehand, and it is integrated out. What stays is the
evidence: the product of how likely each row is given those before it. It needs no held-out row, and a cause that tells
nothing does not raise it. Graphs were compared so by Friedman and Nachman (2000). The processes here have inducing
points (Titsias 2009), so that the figure is a lower bound.

All of it needs rows in one place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.evidence import GraphEvidence

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
LENGTH, SIGNAL, SLOPE, NOISE = (0.05, 50.0), (0.01, 10.0), (1e-3, 10.0), (0.01, 3.0)
"""Between what the scales of a process are looked for."""


class RowEvidence(GraphEvidence):
    """The evidence of a column given its causes, by Gaussian processes."""

    def __init__(self, values: Array, rng: np.random.Generator) -> None:
        import torch

        chosen = np.sort(rng.permutation(len(values))[:ROWS])
        rows = values[chosen]
        rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
        self.table = torch.from_numpy(np.clip(rows, -FAR, FAR))
        super().__init__(*self.table.shape)
        self.inducing = torch.from_numpy(rng.permutation(self.rows)[:INDUCING])

    def _fitted(self, effect: int, causes: tuple[int, ...]) -> float:
        """The largest bound, less half a logarithm of the rows for each cause."""
        column = self.table[:, effect]
        if not causes:
            self.noise[effect, causes] = 1.0
            return float(-0.5 * self.rows * np.log(2 * math.pi * math.e * float(column.var(unbiased=False))))
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
    bounds = scale_limits(p)

    def loss(at: Array) -> tuple[float, Array]:
        scales = torch.tensor(at, requires_grad=True)
        value = -bound(scales, inputs, column, inducing)
        (slopes,) = torch.autograd.grad(value, scales)
        return float(value.detach()), slopes.numpy()

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return found.x, -float(found.fun)


def scale_limits(p: int) -> list[tuple[float, float]]:
    """Between what the logarithms of a process' scales are looked for."""
    return [tuple(one) for one in np.log([LENGTH] * p + [SIGNAL] + [SLOPE] * p + [NOISE]).tolist()]


def kernel(first: Tensor, second: Tensor, logarithms: Tensor) -> Tensor:
    """A smooth function of all causes and straight lines of each."""
    import torch

    p = first.shape[1]
    scales = logarithms.exp()
    lengths, signal, slopes = scales[:p], scales[p] ** 2, scales[p + 1 : -1] ** 2
    apart = torch.cdist(first / lengths, second / lengths, compute_mode="use_mm_for_euclid_dist")
    return signal * torch.exp(-0.5 * apart**2) + (first * slopes) @ second.T


def bound(logarithms: Tensor, inputs: Tensor, column: Tensor, inducing: Tensor, shape: Tensor | None = None) -> Tensor:
    """Titsias' bound for a smooth function of all causes and straight lines of each, whatever their size.

    `shape` (n,) is how many times the noise's variance each row has; None: all have the same.
    """
    import torch

    part, whole, told, noise, variances = _solved(logarithms, inputs, column, inducing, shape)
    likely = -0.5 * torch.log(2 * np.pi * noise).sum() - torch.log(whole.diagonal()).sum()
    wrong = (column**2 / noise).sum() - (told**2).sum() + (variances / noise).sum() - (part**2).sum()
    value: Tensor = likely - 0.5 * wrong
    return value


def posterior(logarithms: Tensor, inputs: Tensor, column: Tensor, inducing: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) each: what the causes predict of every row, and the variance of that."""
    import torch

    part, whole, told, noise, variances = _solved(logarithms, inputs, column, inducing, None)
    inner = torch.linalg.solve_triangular(whole, part, upper=False)
    mean = noise.sqrt() * (inner.T @ told)[:, 0]
    spread = variances + noise * ((inner**2).sum(0) - (part**2).sum(0))
    return mean, spread.clamp(min=0)


def _solved(
    logarithms: Tensor, inputs: Tensor, column: Tensor, inducing: Tensor, shape: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What bound and posterior share: the whitened kernel, its root, what it tells of the column, noise, variances."""
    import torch

    p = inputs.shape[1]
    scales = logarithms.exp()
    signal, slopes = scales[p] ** 2, scales[p + 1 : -1] ** 2
    noise = scales[-1] ** 2 * (torch.ones_like(column) if shape is None else shape)
    points = inputs[inducing]
    inside = kernel(points, points, logarithms)
    inside = inside + JITTER * (signal + slopes.sum() + 1) * torch.eye(len(points)).double()
    root = torch.linalg.cholesky(inside)
    part = torch.linalg.solve_triangular(root, kernel(points, inputs, logarithms), upper=False) / noise.sqrt()
    whole = torch.linalg.cholesky(part @ part.T + torch.eye(len(points)).double())
    told = torch.linalg.solve_triangular(whole, (part @ (column / noise.sqrt()))[:, None], upper=False)
    return part, whole, told, noise, signal + inputs**2 @ slopes


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
