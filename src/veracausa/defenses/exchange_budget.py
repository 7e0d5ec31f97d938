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
    """Counts how often each training row was asked for: `each` of `planned` times, evenly, it may have a new payload.

    Where that is every time, a row has a new payload `each` times and then no more.
    """

    def __init__(self, each: int, planned: int = 0) -> None:
        self.each, self.planned = each, max(each, planned)
        self.asked = torch.zeros(0, dtype=torch.int64)

    def spend(self, ids: Tensor) -> Tensor:
        """Which of these rows get a new payload, on the CPU; all are counted. An id may come several times."""
        ids = ids.cpu()
        if len(ids) and (missing := int(ids.max()) + 1 - len(self.asked)) > 0:
            self.asked = torch.cat([self.asked, torch.zeros(missing, dtype=torch.int64)])
        before = self.asked[ids] + _earlier(ids)
        self.asked.index_add_(0, ids, torch.ones_like(ids))
        return self._spent_after(before + 1) > self._spent_after(before)

    def spent(self) -> float:
        """The share of rows that get no new payload any more."""
        return float((self._spent_after(self.asked) == self.each).float().mean()) if len(self.asked) else 0.0

    def _spent_after(self, asked: Tensor) -> Tensor:
        """How many new payloads a row has had when it was asked for so often: ⌈each · asked / planned⌉."""
        return -(-self.each * asked.clamp(max=self.planned) // self.planned)


def _earlier(ids: Tensor) -> Tensor:
    """How often each id of a batch stands in it before."""
    ranked, order = ids.sort(stable=True)
    earlier = torch.empty_like(ids)
    earlier[order] = torch.arange(len(ids)) - torch.searchsorted(ranked, ranked)
    return earlier
