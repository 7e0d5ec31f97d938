"""Exact discrete Gaussian noise on integers: the sampler of Canonne, Kamath and Steinke (2020), many draws at a time.

Every chance is decided by comparing a uniform number, bit by bit, with exp(−γ). Floating point decides where its error
can not matter. The few draws that fall closer to the edge than that are decided with as many digits as they need. So
the result has exactly the distribution that the account assumes, for a σ that is exactly the float it is given as.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import P

Integers = NDArray[np.int64]
WORD = 52
"""Bits of a uniform number."""
LARGEST_DEVIATION = 2.0**50
_ERROR = 2.0**-40
"""Floating point computes exp(−γ) here to about 2⁻⁵⁰."""
_WHOLE = (P >> WORD) << WORD
"""Elements of the field below this have low bits that are exactly uniform."""


def discrete_gaussian(source: Masks, deviation: float, count: int) -> Integers:
    """So many integers, n with a chance proportional to exp(−n²/(2σ²)), where σ is `deviation`."""
    if not 0 < deviation <= LARGEST_DEVIATION:
        raise ValueError(f"a deviation of {deviation:g} is none that can be drawn")
    parts: list[Integers] = []
    missing = count
    while missing > 0:
        drawn = _accepted(source, deviation, 2 * missing + 16)[:missing]
        parts.append(drawn)
        missing -= len(drawn)
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _accepted(source: Masks, deviation: float, tries: int) -> Integers:
    """What is left of so many draws of a discrete Laplace (Algorithm 3)."""
    scale = int(deviation) + 1
    drawn = discrete_laplace(source, scale, tries)
    sizes = np.abs(drawn)
    square = Fraction(deviation) ** 2

    def exact(at: int) -> Fraction:
        return (int(sizes[at]) - square / scale) ** 2 / (2 * square)

    gamma = np.square((sizes - deviation * (deviation / scale)) / deviation) / 2
    return drawn[bernoulli_exp(source, gamma, exact)]


def discrete_laplace(source: Masks, scale: int, tries: int) -> Integers:
    """What is left of so many tries, n with a chance proportional to exp(−|n|/scale) (Algorithm 2)."""
    low = _below(source, scale, tries)
    low = low[bernoulli_exp(source, low / scale, lambda at: Fraction(int(low[at]), scale))]
    high = np.zeros(len(low), dtype=np.int64)
    going = np.arange(len(low))
    while going.size:
        more = bernoulli_exp(source, np.ones(going.size), lambda at: Fraction(1))
        going = going[more]
        high[going] += 1
    sizes = low + scale * high
    negative = _words(source, len(sizes)) % 2 == 1
    signed: Integers = np.where(negative, -sizes, sizes)
    kept: Integers = signed[~(negative & (sizes == 0))]  # else 0 would come twice as often
    return kept


def bernoulli_exp(source: Masks, gamma: Array, exact: Callable[[int], Fraction]) -> Mask:
    """Whether each of these chances exp(−γ) comes true; `exact` has each γ as a fraction."""
    words = _words(source, len(gamma))
    unit = 2.0**-WORD
    chance = np.exp(-gamma)
    out = (words + 1.0) * unit <= chance - _ERROR
    for at in np.flatnonzero(~out & (words * unit < chance + _ERROR)):
        out[at] = _decided(source, int(words[at]), exact(int(at)))
    return out


def _decided(source: Masks, word: int, gamma: Fraction) -> bool:
    """Whether a uniform number that begins with these bits lies below exp(−γ)."""
    bits, digits = WORD, 40
    while True:
        with decimal.localcontext() as context:
            context.prec = digits + 20
            chance = Fraction((-decimal.Decimal(gamma.numerator) / decimal.Decimal(gamma.denominator)).exp())
        error = Fraction(1, 10**digits)
        if Fraction(word + 1, 1 << bits) <= chance - error:
            return True
        if Fraction(word, 1 << bits) >= chance + error:
            return False
        word, bits, digits = word << WORD | int(_words(source, 1)[0]), bits + WORD, digits + 20


def _words(source: Masks, count: int) -> Integers:
    """Uniform numbers of `WORD` bits."""
    drawn = source.uniform(count)
    while (beyond := drawn >= _WHOLE).any():
        drawn[beyond] = source.uniform(int(beyond.sum()))
    return drawn & ((1 << WORD) - 1)


def _below(source: Masks, most: int, count: int) -> Integers:
    """Uniform numbers below `most`."""
    drawn = _words(source, count)
    whole = (1 << WORD) // most * most
    while (beyond := drawn >= whole).any():
        drawn[beyond] = _words(source, int(beyond.sum()))
    return drawn % most
