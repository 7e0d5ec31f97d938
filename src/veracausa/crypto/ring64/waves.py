"""A bounded curve on shares: tanh as a sum of a few sines, whose period is a power of two and so divides the ring.

Of c = z + r, with r known to one server and c to the two others, sin(c − r) = sin c · cos r − cos c · sin r is a sum of
public numbers times numbers that are dealt. No range has to be kept: far out the curve turns back, and never grows.
All sines come from tables of whole numbers, so that servers on different machines have the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto.ring64.fixed64 import Words, word

PERIOD_BITS = 4
"""The curve repeats after 2 ** this."""
PHASE_BITS = 16
"""So many phases are told apart in a period."""
TABLE_BITS = 12
"""Fractional bits of every table; a value of the curve has twice as many."""
WAVE_BITS = 2 * TABLE_BITS
HARMONICS = (1, 3, 5)

_PERIOD = float(1 << PERIOD_BITS)
_OMEGA = 2 * np.pi / _PERIOD
_AMPLITUDES = tuple(4 * np.pi / (_PERIOD * np.sinh(k * np.pi * np.pi / _PERIOD)) for k in HARMONICS)
"""The Fourier coefficients of tanh around 0, minus tanh around half a period, and so on."""


def curve(u: Array) -> Array:
    """σ(u), within 0.03 of tanh(u) for |u| < 6."""
    return np.asarray(sum(a * np.sin(k * _OMEGA * u) for a, k in zip(_AMPLITUDES, HARMONICS, strict=True)))


def slope(u: Array) -> Array:
    """σ'(u)."""
    return np.asarray(sum(a * k * _OMEGA * np.cos(k * _OMEGA * u) for a, k in zip(_AMPLITUDES, HARMONICS, strict=True)))


def exact_tables() -> list[Array]:
    """Of all phases, (2 · harmonics, phases): what is dealt of r; what c makes of it for σ; and for σ'."""
    phase = 2 * np.pi * np.arange(1 << PHASE_BITS) / (1 << PHASE_BITS)
    dealt, values, slopes = [], [], []
    for amplitude, k in zip(_AMPLITUDES, HARMONICS, strict=True):
        sine, cosine = np.sin(k * phase), np.cos(k * phase)
        dealt += [cosine, sine]
        values += [amplitude * sine, -amplitude * cosine]
        slopes += [amplitude * k * _OMEGA * cosine, amplitude * k * _OMEGA * sine]
    return [np.array(part) for part in (dealt, values, slopes)]


def _rounded(table: Array) -> Words:
    return np.rint(table * 2.0**TABLE_BITS).astype(np.int64).view(np.uint64)


DEALT, VALUES, SLOPES = map(_rounded, exact_tables())
TERMS = len(DEALT)
"""Numbers that are dealt for one value."""


def phases(numbers: Words, bits: int) -> NDArray[np.int64]:
    """Of numbers with so many fractional bits, modulo the period."""
    cut = np.uint64(bits + PERIOD_BITS - PHASE_BITS)
    return ((numbers >> cut) & word((1 << PHASE_BITS) - 1)).astype(np.int64)


def combined(table: Words, opened: NDArray[np.int64], dealt: Words) -> Words:
    """A share of the values at c − r, from the phases of c and shares (terms, …) of what the phases of r deal."""
    total: Words = table[0][opened] * dealt[0]
    for row, part in zip(table[1:], dealt[1:], strict=True):
        total = total + row[opened] * part
    return total
