"""How likely rows are under a graph where the size of the noise may follow the causes, too.

As in `gaussian_processes`, an effect is any smooth function of its causes together. The logarithm of its noise's
variance is a sum of a few curves: of each cause, of what the causes predict (as of counts, and where noise multiplies),
or of both. Which of them it is, if any, BIC decides for each column and each set of causes.

All of it needs rows in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.gaussian_processes import STEPS, RowEvidence, bound, fitted_scales, posterior, scale_limits

if TYPE_CHECKING:
    from torch import Tensor

UNEVEN_STEPS = 12
"""Steps in which scales and the noise's curves are fitted together."""
ROUNDS = 8
"""Of scoring, where only the noise's curves are fitted."""
REACH = 2.5
"""So many deviations of a cause carry the size of the noise."""
BENDS = (0.1, 0.35, 0.65, 0.9)
"""Quantiles of what is predicted, at which the size of the noise may bend."""
STEEP = 6.0
"""The logarithm of a variance is between these, above and below that of the column."""
RIDGE = 1e-3


class UnevenEvidence(RowEvidence):
    """The evidence of a column given its causes, by Gaussian processes whose noise may be uneven."""

    def _fitted(self, effect: int, causes: tuple[int, ...]) -> float:
        if not causes:
            return super()._fitted(effect, causes)
        import torch

        column, inputs, p = self.table[:, effect], self.table[:, list(causes)], len(causes)
        logarithms, even = fitted_scales(inputs, column, self.inducing, STEPS)
        mean, spread = posterior(torch.from_numpy(logarithms), inputs, column, self.inducing)
        squares = ((column - mean) ** 2 + spread).numpy()
        price = 0.5 * float(np.log(self.rows))
        designs = noise_designs(inputs.numpy(), mean.numpy())
        fits = [(scored(one, squares), one) for one in designs]
        worth = [gain - price * one.shape[1] for (_, gain), one in fits]
        best = int(np.argmax(worth))
        self.noise[effect, causes] = min(1.0, float(squares.mean()))
        if worth[best] <= 0:
            return even - price * p
        (weights, _), design = fits[best]
        uneven = self._together(inputs, column, logarithms, design, weights) - price * design.shape[1]
        return float(max(even, uneven) - price * p)

    def _together(self, inputs: Tensor, column: Tensor, logarithms: Array, design: Array, weights: Array) -> float:
        """The largest bound over the process' scales and the noise's curves."""
        import torch
        from scipy.optimize import minimize

        curves, most = torch.from_numpy(design), len(logarithms)

        def loss(at: Array) -> tuple[float, Array]:
            scales = torch.tensor(at, requires_grad=True)
            shape = torch.exp(torch.clamp(curves @ scales[most:], -STEEP, STEEP))
            value = -bound(scales[:most], inputs, column, self.inducing, shape)
            (slopes,) = torch.autograd.grad(value, scales)
            return float(value.detach()), slopes.numpy()

        # The design has no constant column: the level is the process' own.
        start = np.concatenate([logarithms, weights[1:]])
        start[most - 1] = 0.5 * weights[0]
        limits = [*scale_limits(inputs.shape[1]), *([(-STEEP, STEEP)] * design.shape[1])]
        start = np.clip(start, *np.transpose(limits))
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": UNEVEN_STEPS})
        return -float(found.fun)


def noise_designs(inputs: Array, mean: Array) -> list[Array]:
    """Curves that may carry the size of the noise: of what is predicted, of the causes, of both. Columns of mean 0."""
    near = np.clip(inputs, -REACH, REACH)
    causes = np.column_stack([near, near**2])
    unit = (mean - mean.mean()) / max(float(mean.std()), 1e-12)
    unit = np.clip(unit, -2 * REACH, 2 * REACH)
    bends = np.quantile(unit, BENDS)
    predicted = np.column_stack([unit, *(np.abs(unit - bend) for bend in bends)])
    made = [predicted, causes, np.column_stack([predicted, causes])]
    return [one - one.mean(axis=0) for one in made]


def scored(design: Array, squares: Array) -> tuple[Array, float]:
    """Weights (level first) of the logarithm of the variance, and the nats gained over one level, by Fisher scoring."""
    whole = np.column_stack([np.ones(len(design)), design])
    level = float(np.log(max(squares.mean(), 1e-12)))
    weights = np.zeros(whole.shape[1])
    weights[0] = level
    gram = whole.T @ whole + RIDGE * len(whole) * np.diag(whole.var(axis=0))
    best, kept = 0.0, weights.copy()
    for _ in range(ROUNDS):
        logs = np.clip(whole @ weights, level - STEEP, level + STEEP)
        weights = weights + np.linalg.solve(gram, whole.T @ np.clip(squares * np.exp(-logs) - 1, -1, 8))
        logs = np.clip(whole @ weights, level - STEEP, level + STEEP)
        gain = 0.5 * float(len(squares) * (level + 1) - np.sum(logs + squares * np.exp(-logs)))
        if gain > best:
            best, kept = gain, weights.copy()
    return kept, best
