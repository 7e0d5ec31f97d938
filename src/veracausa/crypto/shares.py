"""One holder's shares of weights that grow by increments and are scaled by public factors, without any truncation.

To multiply a share by a fraction would add fractional bits each time, and to cut them off again a comparison that two
holders can not do alone. So the increments stay as they came, and each has a public coefficient, the product of all
factors since: W = Σ a_e ∘ V_e with integers a_e = round(2^s · Π κ). Thousands of increments are kept few by putting
together those whose coefficients lie next to each other; both holders do so by the same public rule, so that what they
hold stays a sharing of one W.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.crypto import ring
from veracausa.crypto.ring import Ring

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FORWARD_BITS = 12
NORM_BITS = 4
"""Bits of the coefficients: for use in products, and for norms, whose squares must fit the field."""
SLOTS = 16
_FORGOTTEN = 0.5 ** (FORWARD_BITS + 1)


class SharedWeights:
    """A share of the blocks W[i, j] (h numbers each), (a, b, h): what one of its two holders keeps."""

    def __init__(self, first: Ring, slots: int = SLOTS) -> None:
        a, b, h = first.shape
        self.parts = np.zeros((slots, a, b, h), dtype=np.int64)
        self.coefficients = np.zeros((slots, a, b))
        self.counts = np.zeros((slots, a, b))
        """How many increments a slot holds, 0: none that still counts."""
        self.fresh = first
        """The sum of increments since the last factors."""
        self.allowed = np.ones((a, b), dtype=bool)
        self.forward: Ring
        """The share of W with FORWARD_BITS more fractional bits than the increments."""
        self._combine()

    @property
    def norm(self) -> Ring:
        """The share of W with NORM_BITS more fractional bits than the increments."""
        return ring.add_scaled(self._norm, self.fresh, 1 << NORM_BITS)

    def grow(self, increment: Ring) -> None:
        """Add one increment; blocks that are not allowed any more take none."""
        if not self.allowed.all():
            increment = increment * self.allowed[..., None]
        self.fresh = ring.add(self.fresh, increment)
        self.forward = ring.add_scaled(self.forward, increment, 1 << FORWARD_BITS)

    def shrink(self, factors: Array) -> None:
        """W ← κ ∘ W, with one public factor a block; 0 ends a block's history exactly."""
        self._store()
        self.coefficients *= factors
        forgotten = self.coefficients < _FORGOTTEN
        self.coefficients[forgotten] = 0.0
        self.counts[forgotten] = 0.0
        self._combine()

    def restrict(self, allowed: Mask) -> None:
        """End the blocks that are not allowed, for good."""
        self.allowed = allowed
        self.shrink(allowed.astype(float))

    def _store(self) -> None:
        """Put the fresh increments into a slot of their own, made free by joining the two slots that are most alike.

        What is joined gets the mean of its coefficients, weighted by how many increments it holds; the two for which
        that changes the coefficients least (Ward's criterion) are taken, block by block.
        """
        order = np.argsort(self.coefficients, axis=0, kind="stable")
        c = np.take_along_axis(self.coefficients, order, 0)
        n = np.take_along_axis(self.counts, order, 0)
        both = np.maximum(n[:-1] + n[1:], 1.0)
        least = np.argmin(n[:-1] * n[1:] / both * np.square(c[1:] - c[:-1]), axis=0)
        rows, columns = np.indices(least.shape)
        keep, free = order[least, rows, columns], order[least + 1, rows, columns]
        kept, freed = (keep, rows, columns), (free, rows, columns)
        n_kept, n_freed = self.counts[kept], self.counts[freed]
        together = np.maximum(n_kept + n_freed, 1.0)
        mean = (self.coefficients[kept] * n_kept + self.coefficients[freed] * n_freed) / together
        self.parts[kept] = ring.add(
            self.parts[kept] * (n_kept > 0)[..., None], self.parts[freed] * (n_freed > 0)[..., None]
        )
        self.coefficients[kept], self.counts[kept] = mean, n_kept + n_freed
        self.parts[freed], self.coefficients[freed], self.counts[freed] = self.fresh, 1.0, 1.0
        self.fresh = np.zeros_like(self.fresh)

    def _combine(self) -> None:
        high, low = ring.limbs(self.parts)
        sums = []
        for bits in (FORWARD_BITS, NORM_BITS):
            by = np.rint(self.coefficients * (1 << bits)).astype(np.int64)[..., None]
            sums.append(ring.joined((high * by).sum(0), (low * by).sum(0)))
        self.forward = ring.add_scaled(sums[0], self.fresh, 1 << FORWARD_BITS)
        self._norm = sums[1]

    def state(self) -> dict[str, Any]:
        kept = (self.parts, self.coefficients, self.counts, self.fresh, self.allowed)
        return {"arrays": [torch.from_numpy(array.copy()) for array in kept]}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> SharedWeights:
        """What `state` was taken of."""
        parts, coefficients, counts, fresh, allowed = (array.numpy() for array in state["arrays"])
        made = cls(fresh, len(parts))
        made.parts, made.coefficients, made.counts, made.allowed = parts, coefficients, counts, allowed
        made._combine()
        return made
