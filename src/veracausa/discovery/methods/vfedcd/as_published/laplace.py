"""The paper's Laplace noise on strengths. It is a heuristic and gives no guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import gammaincinv

from veracausa.arrays import Array
from veracausa.crypto.fixed_point import WEIGHT_BITS
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import Ring, reduce
from veracausa.crypto.shares import NORM_BITS
from veracausa.discovery.acyclicity import LogDeterminant, Spectral, TraceExponential
from veracausa.discovery.privacy.mechanism import uniform


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


class LaplaceHeuristic(BaseModel):
    """The published noise on strengths. A heuristic: it gives no guarantee."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epsilon: float = Field(128.0, gt=0)
    """b = 1/ε: one entry, one look, and as if one row could change a strength by 1 at most, which nobody has shown."""
    rule: Literal["published", "sum"] = "published"
    """published: every party's Laplace noise, b scaled by the root of the number of parties, on the strengths in the
    acyclicity term. sum: parts on the shares of squared strengths that make one Laplace(b), which nobody knows."""
