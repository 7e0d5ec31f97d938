"""Fractional bits cut off a shared number, with the help of a dealt mask: never wrong, and right on average.

x + r is opened, r uniform over the whole ring, so it tells nothing about x. Of r the parties hold shares of its bits
above those cut off, r₁, and of its highest bit. For 0 ≤ x < 2⁶³ that bit and the highest one of x + r say whether the
lower 63 wrapped (Escudero, Ghosh, Keller, Rachuri and Scholl, CRYPTO 2020, take it from there too), so nothing is left
to chance but the rounding: the result is ⌊(x + r₀) / 2^bits⌋ with r₀ the bits cut off r, which is x / 2^bits rounded up
with the probability of its remainder.
"""

from __future__ import annotations

import numpy as np

from veracausa.crypto.ring64.words import HEADROOM, Words, signed, word

_TOP = np.uint64(63)
_BELOW_TOP = word(2**63 - 1)
OFFSET = word(1 << HEADROOM)
"""Added before, so that negative numbers do not wrap either."""


def mask_parts(mask: Words, bits: int) -> tuple[Words, Words]:
    """What a dealer shares of a mask beside the mask itself: r₁ and its highest bit."""
    return (mask & _BELOW_TOP) >> np.uint64(bits), mask >> _TOP


def low_bits(mask: Words, bits: int) -> Words:
    """r₀."""
    return mask & word((1 << bits) - 1)


def cut_share(opened: Words, above: Words, top: Words, bits: int, first: bool) -> Words:
    """A share of the rounded number, from x + OFFSET + r and shares of what `mask_parts` gives."""
    wrapped = word(1 << (63 - bits))
    opened_top = opened >> _TOP
    share = top * (wrapped - (opened_top << np.uint64(64 - bits))) - above
    if first:
        share = share + ((opened & _BELOW_TOP) >> np.uint64(bits)) + opened_top * wrapped - (OFFSET >> np.uint64(bits))
    return share


def rounded(values: Words, mask: Words, bits: int) -> Words:
    """The same in the clear."""
    return floored(values + low_bits(mask, bits), bits)


def floored(values: Words, bits: int) -> Words:
    """Signed numbers without their lowest bits."""
    return (signed(values) >> bits).view(np.uint64)
