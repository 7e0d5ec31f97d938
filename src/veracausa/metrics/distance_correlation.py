"""Distance correlation of two sets of paired rows (Székely, Rizzo and Bakirov, 2007); differentiable."""

from __future__ import annotations

import torch
from torch import Tensor

_FLOOR = 1e-7
"""Under every root, of values brought to unit scale: a root's slope at 0 is infinite."""
_ROUNDING = 1e-6
"""Rows that differ by less than this share of their size are the same row."""


def distance_correlation(first: Tensor, second: Tensor) -> Tensor:
    """dCor of n paired rows of any shapes, a number in [0, 1]: 1 for a similarity map, near 0 for independent rows.

    dCor = dCov / √(dVar·dVar) of the doubly centred Euclidean distance matrices. It is the plain estimate, which is
    biased upwards: independent rows of few numbers score about 1/√n, and rows of many more numbers than there are rows
    come near 1 whatever they hold. Compare values of one batch size only. Computed in float32 at least; the scale of
    either side does not matter, and a constant side gives nearly 0.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} rows cannot be paired with {len(second)}")
    with torch.autocast(first.device.type, enabled=False):
        a, b = (_centred(_distances(side)) for side in (first, second))
        covariance = (a * b).mean()
        variances = a.square().mean() * b.square().mean()
        return (covariance / variances.clamp_min(_FLOOR**2).sqrt()).clamp_min(_FLOOR).sqrt()


def _distances(rows: Tensor) -> Tensor:
    """(n, n) Euclidean distances of the rows at unit scale, by one matrix product."""
    rows = rows.flatten(1)
    rows = rows if rows.dtype == torch.float64 else rows.float()
    size = rows.detach().square().sum(1).mean().sqrt()
    rows = rows - rows.mean(0)
    # dCor does not depend on the scale, so neither does its slope: the scale can be held. What rounding leaves of
    # constant rows must not be blown up to it.
    spread = rows.detach().square().sum(1).mean().sqrt()
    least = (_ROUNDING * size).clamp_min(torch.finfo(rows.dtype).tiny ** 0.5)
    rows = rows / torch.maximum(spread, least)
    squares = rows.square().sum(1)
    squared = squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * rows @ rows.T
    together = (squared <= _FLOOR) | torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    return torch.where(together, 0, squared.clamp_min(_FLOOR).sqrt())


def _centred(distances: Tensor) -> Tensor:
    """Row means and column means taken out, the grand mean put back."""
    means = distances.mean(0)
    return distances - means.unsqueeze(0) - means.unsqueeze(1) + means.mean()
