"""Fixed-point numbers in the ring of 64-bit words, streams of random words, and truncation of shared numbers.

NumPy's arithmetic wraps as the ring does. To truncate a shared number x, x + r is opened, r uniform over the whole
ring, so it tells nothing about x. Of r the parties hold shares of its bits above those cut off, r₁, and of its highest
bit. For 0 ≤ x < 2⁶³ that bit and the highest one of x + r say whether the lower 63 wrapped (Escudero, Ghosh, Keller,
Rachuri and Scholl, CRYPTO 2020, take it from there too). So nothing is left to chance but the rounding: the result is
⌊(x + r₀) / 2^bits⌋ with r₀ the bits cut off r, which is x / 2^bits rounded up with the probability of its remainder.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.errors import RunError

Words = NDArray[np.uint64]

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


SEED_BYTES = 32
_BLOCK = 1 << 17
"""Words drawn at a time."""


class Stream:
    """Every word is drawn once; there is no way back."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes")
        self._seed = seed
        self._blocks = 0
        self._left: Words = np.zeros(0, dtype=np.uint64)

    def take(self, shape: tuple[int, ...]) -> Words:
        count = math.prod(shape)
        parts = []
        while count > len(self._left):
            parts.append(self._left)
            count -= len(self._left)
            self._left = self._block()
        parts.append(self._left[:count])
        self._left = self._left[count:]
        return np.concatenate(parts).reshape(shape)

    def _block(self) -> Words:
        text = self._seed + self._blocks.to_bytes(8, "little")
        self._blocks += 1
        return np.frombuffer(hashlib.shake_128(text).digest(8 * _BLOCK), dtype="<u8").astype(np.uint64, copy=False)


def fresh_seed(seed: int | None, *purpose: str | int) -> bytes:
    """A secret seed from the system; or, in a simulation that must repeat, one that whoever knows `seed` knows too."""
    if seed is None:
        return secrets.token_bytes(SEED_BYTES)
    return hashlib.sha256("\x1f".join(map(str, ("insecure", seed, *purpose))).encode()).digest()


TOP = np.uint64(63)
BELOW_TOP = word(2**63 - 1)
_ONE, _ALL = np.uint64(1), np.uint64(64)
OFFSET = word(1 << HEADROOM)
"""Added before, so that negative numbers do not wrap either."""


def mask_parts(mask: Words, bits: int) -> tuple[Words, Words]:
    """What a dealer shares of a mask beside the mask itself: r₁ and its highest bit."""
    return (mask & BELOW_TOP) >> np.uint64(bits), mask >> TOP


def low_bits(mask: Words, bits: int) -> Words:
    """r₀."""
    return mask & word((1 << bits) - 1)


def truncate_share(opened: Words, above: Words, top: Words, bits: int, first: bool) -> Words:
    """A share of the rounded number, from x + OFFSET + r and shares of what `mask_parts` gives."""
    share = times_top(opened, top, np.uint64(bits)) - above
    return share + opened_part(opened, np.uint64(bits)) if first else share


def times_top(opened: Words, top: Words, bits: Words | np.uint64) -> Words:
    """The part of the rounded number that shares of the mask's highest bit are in."""
    share: Words = top * ((_ONE << (TOP - bits)) - ((opened >> TOP) << (_ALL - bits)))
    return share


def opened_part(opened: Words, bits: Words | np.uint64) -> Words:
    """The part of the rounded number that follows from x + OFFSET + r alone."""
    part: Words = ((opened & BELOW_TOP) >> bits) + ((opened >> TOP) << (TOP - bits)) - (OFFSET >> bits)
    return part


def rounded(values: Words, mask: Words, bits: int) -> Words:
    """The same in the clear."""
    return floored(values + low_bits(mask, bits), bits)


def floored(values: Words, bits: int) -> Words:
    """Signed numbers without their lowest bits."""
    return (signed(values) >> bits).view(np.uint64)
