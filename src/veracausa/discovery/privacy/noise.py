"""Noise from a party's own entropy: normal, rounded normal, and parts that make one Laplace noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from veracausa.crypto.draws import Masks
from veracausa.crypto.ring import BITS, Ring, reduce

Array = NDArray[np.float64]

_PRECISION = 53


def uniform(source: Masks, *shape: int) -> Array:
    """Between 0 and 1, both left out, in steps of 2⁻⁵³."""
    words = source.uniform(*shape) >> (BITS - _PRECISION)
    return np.asarray((words + 0.5) / 2.0**_PRECISION)


def normal(source: Masks, *shape: int) -> Array:
    """Normal, by Box and Muller; steps of 2⁻⁵³ end its tails at 8.6 deviations."""
    count = int(np.prod(shape))
    half = -(-count // 2)
    radius, angle = uniform(source, 2, half)
    radius, angle = np.sqrt(-2 * np.log(radius)), 2 * np.pi * angle
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count].reshape(shape)


def rounded_normal(source: Masks, deviation: float, *shape: int) -> Ring:
    """round(N(0, σ²)) as elements of the field.

    Added to integers it is the rounding of integers + N(0, σ²): what a Gaussian mechanism guarantees holds unchanged.
    """
    return reduce(np.rint(deviation * normal(source, *shape)).astype(np.int64))


def laplace_part(source: Masks, scale: float, holders: int, *shape: int) -> Array:
    """One holder's part of a Laplace noise: so many of them sum to exactly Laplace(b).

    Laplace is infinitely divisible: it is the sum of `holders` differences of two Gamma(1/holders, b).
    """
    more, less = gammaincinv(1 / holders, uniform(source, 2, *shape))
    return np.asarray(scale * (more - less))
