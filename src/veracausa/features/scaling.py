"""Features of one party on a common scale: mean 0 and spread 1 over its own rows, clipped, with a presence column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from veracausa.arrays import Array, Mask
from veracausa.errors import InputError

SMALLEST_SPREAD = 1e-9
"""A feature that varies less than that, beside its own size, is constant up to rounding."""


@dataclass(frozen=True)
class Scaling:
    """Mean and spread of each feature over the rows that the party holds, and the bounds of what it lets into sums."""

    mean: Array
    spread: Array
    """One where a feature is constant: it becomes zero."""
    limit: float
    """No feature is larger: rare huge values are cut, so that fixed point has room."""
    clip: float | None = None
    """The greatest norm of a row, presence column included; None: any."""

    @classmethod
    def of_blocks(cls, blocks: Iterable[Array], limit: float, clip: float | None = None) -> Scaling:
        """From features block by block, by Chan's update: all rows need not lie in memory."""
        count, mean, squares = 0, np.zeros(0), np.zeros(0)
        for block in blocks:
            if not len(block):
                continue
            if not np.isfinite(block).all():
                raise InputError("features: a feature map gave values that are not finite; take another one")
            own = block.mean(0)
            spread = ((block - own) ** 2).sum(0)
            if not count:
                count, mean, squares = len(block), own, spread
                continue
            total = count + len(block)
            step = own - mean
            squares = squares + spread + step**2 * count * len(block) / total
            mean, count = mean + step * len(block) / total, total
        if not count:
            raise InputError("features: the party holds none of the training rows; remove it from the job")
        deviation = np.sqrt(squares / count)
        flat = deviation <= SMALLEST_SPREAD * np.maximum(np.abs(mean), 1.0)
        return cls(mean, np.where(flat, 1.0, deviation), limit, clip)

    @property
    def width(self) -> int:
        """Of a scaled row: the features and the presence column."""
        return len(self.mean) + 1

    def apply(self, features: Array, present: Mask | None = None) -> Array:
        """(n, width): scaled rows with their presence column; zeros where `present` says that the party lacks the row.

        `features` are those of the rows it holds, in order.
        """
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise InputError(f"features: {features.shape[1:]} values a row, and the scaling is of {len(self.mean)}")
        scaled = np.clip((features - self.mean) / self.spread, -self.limit, self.limit)
        rows = np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1)
        if self.clip is not None:
            rows = clipped(rows, self.clip)
        if present is None:
            return rows
        if int(present.sum()) != len(rows):
            raise InputError(f"features: {len(rows)} rows for {int(present.sum())} that are present")
        whole = np.zeros((len(present), self.width))
        whole[present] = rows
        return whole

    def state(self) -> dict[str, Any]:
        tensors = {"mean": torch.from_numpy(self.mean.copy()), "spread": torch.from_numpy(self.spread.copy())}
        return {**tensors, "limit": self.limit, "clip": self.clip}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Scaling:
        """The scaling that `state` was taken of."""
        mean, spread = np.asarray(state["mean"], np.float64), np.asarray(state["spread"], np.float64)
        if mean.shape != spread.shape or not (np.isfinite(mean).all() and (spread > 0).all()):
            raise InputError("the saved scaling of the features cannot be read; put an intact copy in its place")
        return cls(mean, spread, float(state["limit"]), None if state["clip"] is None else float(state["clip"]))


def clipped(rows: Array, norm: float) -> Array:
    """The rows, those longer than `norm` shortened to it."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    shorter: Array = rows * np.minimum(1.0, norm / np.maximum(lengths, 1e-300))
    return shorter


def least_support(columns: Array) -> Array:
    """For each column, in how many rows it differs from its commonest value: few rows would be opened by a sum."""
    found = np.empty(columns.shape[1])
    for number, column in enumerate(columns.T):
        found[number] = len(column) - np.unique(column, return_counts=True)[1].max() if len(column) else 0
    return found
