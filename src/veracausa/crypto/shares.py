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

from veracausa.arrays import Array, Mask
from veracausa.crypto import ring
from veracausa.crypto.ring import Ring

FORWARD_BITS = 12
NORM_BITS = 4
"""Bits of the coefficients: for use in products, and for norms, whose squares must fit the field."""
SLOTS = 16
_SCALES = np.array([[1 << FORWARD_BITS], [1 << NORM_BITS]], dtype=np.float64)
_FORGOTTEN = 0.5 ** (FORWARD_BITS + 1)


class SharedWeights:
    """A share of the blocks W[i, j] (h numbers each), (…, h): what one of its holders keeps."""

    def __init__(self, first: Ring, slots: int = SLOTS) -> None:
        *self.shape, self.h = first.shape
        blocks = int(np.prod(self.shape))
        self._at = np.arange(blocks)
        self.parts = np.zeros((blocks, slots, 2 * self.h))
        """Sums of increments, as limbs: 16 products with a coefficient add up exactly in a float64."""
        self.coefficients = np.zeros((blocks, slots))
        self.counts = np.zeros((blocks, slots))
        """How many increments a slot holds, 0: none that still counts."""
        self.fresh = first.copy()
        """The sum of increments since the last factors."""
        self.allowed = np.ones(self.shape, dtype=bool)
        self.forward: Ring
        """The share of W with FORWARD_BITS more fractional bits than the increments."""
        self._combine()

    @property
    def norm(self) -> Ring:
        """The share of W with NORM_BITS more fractional bits than the increments."""
        return ring.add_scaled(self._norm, self.fresh, 1 << NORM_BITS)

    def grow(self, increment: Ring, at: Any = slice(None)) -> None:
        """Add one increment, or one of some blocks; blocks that are not allowed any more take none."""
        if not self.allowed[at].all():
            increment = increment * self.allowed[at][..., None]
        self.fresh[at] = ring.add(self.fresh[at], increment)
        self.forward[at] = ring.add_scaled(self.forward[at], increment, 1 << FORWARD_BITS)

    def shrink(self, factors: Array) -> None:
        """W ← κ ∘ W, with one public factor a block; 0 ends a block's history exactly."""
        self._store()
        self.coefficients *= factors.reshape(-1, 1)
        forgotten = self.coefficients < _FORGOTTEN
        self.coefficients[forgotten] = 0.0
        self.counts[forgotten] = 0.0
        self._combine()

    def restrict(self, allowed: Mask) -> None:
        """End the blocks that are not allowed, for good."""
        self.allowed = allowed.reshape(self.shape)
        self.shrink(allowed.astype(float))

    def taken(self, at: NDArray[np.int_]) -> SharedWeights:
        """The same share of some blocks, by their numbers; `put` brings them back."""
        made = SharedWeights(self.fresh.reshape(-1, self.h)[at], self.parts.shape[1])
        made.parts, made.coefficients, made.counts = self.parts[at], self.coefficients[at], self.counts[at]
        made.allowed = self.allowed.reshape(-1)[at]
        made._combine()
        return made

    def put(self, at: NDArray[np.int_], blocks: SharedWeights) -> None:
        """Take over what became of some blocks."""
        self.parts[at], self.coefficients[at], self.counts[at] = blocks.parts, blocks.coefficients, blocks.counts
        self.allowed.reshape(-1)[at] = blocks.allowed
        for mine, theirs in ((self.fresh, blocks.fresh), (self.forward, blocks.forward), (self._norm, blocks._norm)):
            mine.reshape(-1, self.h)[at] = theirs

    def _store(self) -> None:
        """Put the fresh increments into a slot of their own, made free by joining the two slots that are most alike.

        What is joined gets the mean of its coefficients, weighted by how many increments it holds; the two for which
        that changes the coefficients least (Ward's criterion) are taken, block by block.
        """
        order = np.argsort(self.coefficients, axis=1, kind="stable")
        at = self._at[:, None]
        c, n = self.coefficients[at, order], self.counts[at, order]
        both = np.maximum(n[:, :-1] + n[:, 1:], 1.0)
        least = np.argmin(n[:, :-1] * n[:, 1:] / both * np.square(c[:, 1:] - c[:, :-1]), axis=1)
        lower, upper = (self._at, least), (self._at, least + 1)
        kept, freed = (self._at, order[lower]), (self._at, order[upper])
        n_kept, n_freed = n[lower], n[upper]
        together = n_kept + n_freed
        mean = (c[lower] * n_kept + c[upper] * n_freed) / np.maximum(together, 1.0)
        joined = self.parts[kept] * (n_kept > 0)[:, None] + self.parts[freed] * (n_freed > 0)[:, None]
        self.parts[kept] = _as_limbs(_as_elements(joined))
        self.coefficients[kept], self.counts[kept] = mean, together
        self.parts[freed], self.coefficients[freed], self.counts[freed] = _as_limbs(self.fresh), 1.0, 1.0
        self.fresh[:] = 0

    def _combine(self) -> None:
        integers = np.rint(self.coefficients[:, None] * _SCALES)
        sums = _as_elements(integers @ self.parts)
        shape = self.fresh.shape
        self.forward = ring.add_scaled(sums[:, 0].reshape(shape), self.fresh, 1 << FORWARD_BITS)
        self._norm = sums[:, 1].reshape(shape)

    def state(self) -> dict[str, Any]:
        kept = (self.parts, self.coefficients, self.counts, self.fresh, self.allowed)
        return {"arrays": [torch.from_numpy(array.copy()) for array in kept]}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> SharedWeights:
        """What `state` was taken of."""
        parts, coefficients, counts, fresh, allowed = (array.numpy() for array in state["arrays"])
        made = cls(fresh, parts.shape[1])
        made.parts, made.coefficients, made.counts, made.allowed = parts, coefficients, counts, allowed
        made._combine()
        return made


def _as_limbs(elements: Ring) -> Array:
    """(blocks, 2·h): high limbs, then low ones."""
    high, low = ring.limbs(elements.reshape(-1, elements.shape[-1]))
    return np.concatenate([high, low], axis=1).astype(np.float64)


def _as_elements(limbs: Array) -> Ring:
    whole = limbs.astype(np.int64)
    h = whole.shape[-1] // 2
    return ring.joined(whole[..., :h], whole[..., h:])


class SharedBlocks:
    """Some blocks of a share that is kept together with others, as (…, h): a view, nothing of its own."""

    def __init__(self, shares: SharedWeights, at: slice, *shape: int) -> None:
        self._shares, self._at, self._shape = shares, at, (*shape, shares.h)

    @property
    def forward(self) -> Ring:
        return self._shares.forward[self._at].reshape(self._shape)

    @property
    def norm(self) -> Ring:
        return self._shares.norm[self._at].reshape(self._shape)

    @property
    def fresh(self) -> Ring:
        return self._shares.fresh[self._at].reshape(self._shape)

    @property
    def allowed(self) -> Mask:
        return self._shares.allowed[self._at].reshape(self._shape[:-1])

    def grow(self, increment: Ring) -> None:
        self._shares.grow(increment.reshape(-1, self._shape[-1]), self._at)
