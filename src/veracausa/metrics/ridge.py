"""Ridge regression in closed form: the linear guess an attacker can always make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class Ridge:
    """A fitted map from inputs (n, *) to rows of one shape; computes in float64."""

    mean: Tensor
    weights: Tensor
    offset: Tensor
    shape: torch.Size

    def __call__(self, inputs: Tensor) -> Tensor:
        predicted = (inputs.flatten(1).double() - self.mean) @ self.weights + self.offset
        return predicted.to(inputs.dtype).view(len(inputs), *self.shape)


def fit_ridge(inputs: Tensor, rows: Tensor, penalty: float) -> Ridge:
    """W = (XᵀX/n + λI)⁻¹ XᵀY/n of standardised X and centred Y; by (XXᵀ/n + λI)⁻¹ where X is wider than long."""
    x, y = inputs.flatten(1).double(), rows.flatten(1).double()
    mean, offset, count = x.mean(0), y.mean(0), len(x)
    scale = x.std(0, correction=0)
    scale = torch.where(scale > 1e-9, scale, 1)
    x, y = (x - mean) / scale, y - offset
    if x.shape[1] <= count:
        gram = x.T @ x / count
        gram.diagonal().add_(penalty)
        weights = torch.linalg.solve(gram, x.T @ y / count)
    else:
        gram = x @ x.T / count
        gram.diagonal().add_(penalty)
        weights = x.T @ torch.linalg.solve(gram, y / count)
    return Ridge(mean, weights / scale.unsqueeze(1), offset, rows.shape[1:])


def best_penalty(
    inputs: Tensor, rows: Tensor, held_inputs: Tensor, held_rows: Tensor, penalties: Sequence[float] = PENALTIES
) -> tuple[float, float]:
    """The penalty that does best on held-out rows, and its mean squared error there."""
    errors = {
        penalty: float((fit_ridge(inputs, rows, penalty)(held_inputs) - held_rows).square().mean())
        for penalty in penalties
    }
    best = min(errors, key=lambda penalty: errors[penalty])
    return best, errors[best]
