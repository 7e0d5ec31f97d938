"""Exact arithmetic in the prime field that all shares live in, on NumPy arrays of int64 between 0 and P.

An element is cut into a high limb of 29 and a low limb of 30 bits. Products with small integers then stay exact in
int64, and matrix products in float64, where BLAS is fast.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ring = NDArray[np.int64]
Small = NDArray[np.float64]
"""Small signed integers, kept as floats for the matrix products."""

BITS = 59
P = (1 << BITS) - 212991
"""The largest prime below 2^59 that is 1 modulo 2·8192: number-theoretic transforms of that length exist."""
DELTA = (1 << BITS) - P
HALF = P // 2
_P = np.uint64(P)

_LOW = 30
_HIGH = BITS - _LOW
_LOW_MASK = (1 << _LOW) - 1
_HIGH_MASK = (1 << _HIGH) - 1
_EXACT = 4095
"""So many products of 11 and 30 bits add up exactly in a float64."""


def reduce(values: NDArray[np.int64]) -> Ring:
    """Any int64 as an element."""
    # NumPy divides by one number with vector instructions, and takes remainders without them.
    whole = values // P
    whole *= -P
    whole += values
    return whole


def add(a: Ring, b: Ring) -> Ring:
    """Of two elements: both must lie in the field, as for `subtract`."""
    whole = (a + b).view(np.uint64)
    # Without a sign what is below 0 is large: the smaller of the two is the one in the field. Quicker than a division.
    out: Ring = np.minimum(whole, whole - _P, out=whole).view(np.int64)
    return out


def subtract(a: Ring, b: Ring) -> Ring:
    whole = (a - b).view(np.uint64)
    out: Ring = np.minimum(whole, whole + _P, out=whole).view(np.int64)
    return out


def negative(a: Ring) -> Ring:
    return reduce(-a)


def centred(a: Ring) -> NDArray[np.int64]:
    """Elements as signed integers between −P/2 and P/2."""
    out: NDArray[np.int64] = np.where(a > HALF, a - P, a)
    return out


def limbs(a: Ring) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return a >> _LOW, a & _LOW_MASK


def joined(high: NDArray[np.int64], low: NDArray[np.int64]) -> Ring:
    """high·2³⁰ + low, for limbs of any sign below 2⁶⁰."""
    # 2^59 is DELTA here: what lies above comes back small.
    whole = np.asarray(high >> _HIGH)
    whole *= DELTA
    rest = high & _HIGH_MASK
    rest <<= _LOW
    whole += rest
    whole += low
    return reduce(whole)


def scale(a: Ring, by: NDArray[np.int64] | int) -> Ring:
    """Each element times an integer of at most 2³⁰ in magnitude."""
    high, low = limbs(a)
    return joined(high * by, low * by)


def add_scaled(a: Ring, b: Ring, by: int) -> Ring:
    """a + by·b, for an integer of at most 2³⁰ in magnitude."""
    high, low = limbs(b)
    return joined(high * by, low * by + a)


def multiply(a: Ring, b: Ring) -> Ring:
    """Element by element, both of full size."""
    high, low = limbs(b)
    return add(scale(scale(a, high), 1 << _LOW), scale(a, low))


def total(a: Ring, axis: int) -> Ring:
    """The sum over an axis of any length."""
    high, low = limbs(a)
    return joined(high.sum(axis), low.sum(axis))


def matmul(small: Small, a: Ring, plus: Ring | int = 0) -> Ring:
    """(…, n, k) integers below 2¹¹ in magnitude times (…, k, m) elements, + `plus`."""
    at = slice(_EXACT, None)
    if small.shape[-1] > _EXACT:
        plus = matmul(small[..., at], a[..., at, :], plus)
        small, a = small[..., :_EXACT], a[..., :_EXACT, :]
    high, low = limbs(a)
    below = (small @ low.astype(np.float64)).astype(np.int64)
    below += plus
    return joined((small @ high.astype(np.float64)).astype(np.int64), below)


def small_matmul(a: Small, b: Small) -> NDArray[np.int64]:
    """The product of two matrices of small integers whose entries stay below 2⁵³."""
    return (a @ b).astype(np.int64)
