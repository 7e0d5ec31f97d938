"""The ring of 64-bit words, whose arithmetic NumPy does by itself: it wraps as the ring does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.errors import RunError

Words = NDArray[np.uint64]
Array = NDArray[np.float64]

HEADROOM = 62
"""A number may have so many bits and a sign wherever it is rounded or opened."""


def encode(values: Array, bits: int, limit: float) -> Words:
    """Numbers as words with so many fractional bits; what exceeds the limit, or is no number, ends the run."""
    if not np.abs(values).max(initial=0.0) < limit:
        raise RunError(f"the fit diverged: a number beyond {limit:g} does not fit its shares; lower the rate")
    return np.rint(values * 2.0**bits).astype(np.int64).view(np.uint64)


def decode(words: Words, bits: int) -> Array:
    decoded: Array = signed(words) / 2.0**bits
    return decoded


def added(parts: Sequence[Words]) -> Words:
    """What shares add up to."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def signed(words: Words) -> NDArray[np.int64]:
    """Words as integers between −2⁶³ and 2⁶³."""
    return np.ascontiguousarray(words).view(np.int64)


def word(value: int) -> np.uint64:
    """Any integer as an element."""
    return np.uint64(value & (2**64 - 1))
