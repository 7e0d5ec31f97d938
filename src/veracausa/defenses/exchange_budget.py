"""Noise accounted over all exchanges of a row: how much each needs, and who has had as many as were planned.

A row that crosses at t = 1 … T as f_t(x) + ε_t, the ε_t independent with variance v_t, tells about x the information

    Σ_t J_tᵀ J_t / v_t,     J_t the Jacobian of f_t at x,

whatever is made of the payloads: their mean, their differences, anything else, and however the bottom moves. With
v_t = T·σ² that is the mean over t of J_tᵀ J_t / σ²: what one payload with noise σ tells. The same holds of Gaussian
mechanisms, whose parameters add as μ² = Σ μ_t². Noise that is the same at every exchange has no such account: in a
difference of two payloads it cancels, and f_t(x) − f_s(x) is left without any.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def accounted_deviation(noise: float, exchanges: int) -> float:
    """√T·σ: the deviation of each of T payloads' noise, when all of them together may tell what one with σ would."""
    return math.sqrt(exchanges) * noise


class ExchangeBudget:
    """Counts how often each training row has crossed."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.crossed = torch.zeros(0, dtype=torch.int32)

    def spend(self, ids: Tensor) -> Tensor:
        """Which of these rows may cross once more, on the CPU; they are counted. An id may come several times."""
        ids = ids.cpu()
        if len(ids) and (missing := int(ids.max()) + 1 - len(self.crossed)) > 0:
            self.crossed = torch.cat([self.crossed, torch.zeros(missing, dtype=torch.int32)])
        allowed = self.crossed[ids] + _earlier(ids) < self.each
        self.crossed.index_add_(0, ids[allowed], torch.ones(int(allowed.sum()), dtype=torch.int32))
        return allowed

    def spent(self) -> float:
        """The share of rows that may not cross any more."""
        return float((self.crossed >= self.each).float().mean()) if len(self.crossed) else 0.0


def _earlier(ids: Tensor) -> Tensor:
    """How often each id of a batch stands in it before."""
    ranked, order = ids.sort(stable=True)
    earlier = torch.empty_like(ids)
    earlier[order] = torch.arange(len(ids)) - torch.searchsorted(ranked, ranked)
    return earlier
