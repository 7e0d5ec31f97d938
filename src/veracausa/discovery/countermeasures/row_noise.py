"""Noise on every row's features: the sources add it to their answers, so that no target opens a row without it.

Each source adds its part, and the parts' variances add up to σ². What that is worth falls with every opening: the same
rows come back every epoch, and T openings tell what one with noise σ/√T would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto import ring
from veracausa.crypto.draws import Masks
from veracausa.crypto.ring import Ring
from veracausa.discovery.privacy.accountant import gaussian_epsilon

Array = NDArray[np.float64]


def part(deviation: float, sources: int) -> float:
    """The deviation of one source's part. A target in league with the others is left with this alone."""
    return deviation / math.sqrt(sources)


def drawn(masks: Masks, deviation: float, bits: int, *shape: int) -> Ring:
    """Normal numbers with `bits` fractional bits as elements of the field, from the party's own secret draws."""
    first, second = ((masks.uniform(*shape) + 0.5) / ring.P for _ in range(2))
    normal = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)  # Box and Muller
    return ring.reduce(np.rint(normal * deviation * 2.0**bits).astype(np.int64))


@dataclass(frozen=True)
class Account:
    """What all openings of a row together tell of it, in the terms of Gaussian differential privacy."""

    mu: float
    """Two rows that far apart are told apart as well as N(0, 1) and N(μ, 1); 1 is little, 6 is certainty."""
    epsilon: float
    delta: float


def accounted(deviation: float, openings: int, strength: float, delta: float = 1e-5) -> Account:
    """For rows of a source that differ by one standard deviation in one attribute.

    `strength` is the norm of the weights by which that attribute enters all of a target's features. μ adds up as
    √(Σ μ²) over openings. The weights are taken as they were at the end; what a row tells through its part in the
    weights is not in it, and rows that differ by more are told apart more easily. So this is a floor, no guarantee.
    """
    mu = math.sqrt(openings) * strength / deviation
    return Account(mu, gaussian_epsilon(mu, delta), delta)


def most_exposed(strengths: Array, own: Sequence[int], foreign: Sequence[int]) -> float:
    """The largest norm of weights by which one foreign attribute enters the features of these targets."""
    return float(np.sqrt(np.square(strengths[np.ix_(foreign, own)]).sum(1)).max(initial=0.0))
