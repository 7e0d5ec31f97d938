"""Noise from a party's own entropy: normal, rounded normal, and parts that make one Laplace noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from veracausa.arrays import Array
from veracausa.crypto.fixed_point import WEIGHT_BITS
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import BITS, Ring, reduce
from veracausa.crypto.shares import NORM_BITS
from veracausa.discovery.acyclicity import LogDeterminant, Spectral, TraceExponential
from veracausa.discovery.privacy.options import LaplaceHeuristic

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


Penalty = Spectral | TraceExponential | LogDeterminant

LABEL = "heuristic, gives no guarantee"
SQUARE_BITS = 2 * (WEIGHT_BITS + NORM_BITS)
HOLDERS = 2
"""Of a block's strength."""


def published_scale(epsilon: float, parties: int) -> float:
    """b of each party's noise: 1/ε for two parties, and proportional to 1/√K."""
    return math.sqrt(2 / parties) / epsilon


def published_noise(source: Masks, rule: LaplaceHeuristic, parties: int, shape: tuple[int, ...]) -> Array:
    """What all parties' Laplace noises add up to. It is not Laplace, and its tails are lighter than those of one."""
    scale = published_scale(rule.epsilon, parties)
    return np.asarray(np.sum([laplace_part(source, scale, 1, *shape) for _ in range(parties)], axis=0))


def noisy_strengths(source: Masks, rule: LaplaceHeuristic, parties: int, strengths: Array) -> Array:
    """The strengths that enter the acyclicity term; none is below 0."""
    return np.maximum(0.0, strengths + published_noise(source, rule, parties, strengths.shape))


def share_part(source: Masks, rule: LaplaceHeuristic, bits: int, shape: tuple[int, ...]) -> Ring:
    """One holder's part, for its share of squared strengths: with the other's it is Laplace(1/ε), rounded to units."""
    part = laplace_part(source, 1 / rule.epsilon, HOLDERS, *shape)
    return reduce(np.rint(part * 2.0**bits).astype(np.int64))


def whole(source: Masks, rule: LaplaceHeuristic, shape: tuple[int, ...]) -> Array:
    """All of it, for strengths that one party alone knows."""
    return laplace_part(source, 1 / rule.epsilon, 1, *shape)


def noisy_squares(source: Masks, rule: LaplaceHeuristic, sent: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """What a party sends of squared strengths, with its part of the noise: shares of foreign blocks, and its own."""
    parts = {name: share_part(source, rule, SQUARE_BITS, sent[name].shape) for name in ("into", "out")}
    noisy = {name: reduce(sent[name] + part) for name, part in parts.items()}
    return {**sent, **noisy, "own": sent["own"] + whole(source, rule, sent["own"].shape)}


class NoisyPenalty:
    """An acyclicity term that is given strengths with the published noise on them."""

    def __init__(self, penalty: Penalty, rule: LaplaceHeuristic, parties: int, source: Masks) -> None:
        self.penalty, self.rule, self.parties, self.source = penalty, rule, parties, source

    def __call__(self, strengths: Array) -> tuple[Array, Array]:
        return self.penalty(noisy_strengths(self.source, self.rule, self.parties, strengths))

    def state(self) -> dict[str, Array]:
        return self.penalty.state()

    def load_state(self, state: dict[str, Array]) -> None:
        self.penalty.load_state(state)


def statement(rule: LaplaceHeuristic, parties: int) -> dict[str, object]:
    """What a record says of it."""
    scale = published_scale(rule.epsilon, parties) if rule.rule == "published" else 1 / rule.epsilon
    return {"mechanism": f"laplace, {rule.rule}", "guarantee": LABEL, "scale": scale}
