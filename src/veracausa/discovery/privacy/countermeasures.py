"""A bottleneck: of every target attribute fewer numbers are opened than its network has hidden units.

The encoder's weights are V·M with M public and orthonormal, (numbers, h): V is what is shared, X·V is what is opened,
and the target spreads it over its hidden units by M. ‖V·M‖ = ‖V‖, so strengths mean what they meant. With fewer numbers
a row than there are foreign columns one opening does not determine the row; many openings, with weights that move, may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto import ring
from veracausa.crypto.randomness import KEY, KeyedMasks, Masks, drawn_key, subkey
from veracausa.crypto.ring import Ring
from veracausa.discovery.privacy.accountant import gaussian_epsilon


def mixing(numbers: int, width: int) -> Array:
    """M (numbers, width), the same for everybody: cosines, whose rows are orthonormal."""
    at = np.arange(width) + 0.5
    rows = np.cos(np.pi * np.outer(np.arange(numbers), at) / width)
    # The first row would give every hidden unit the same input; turn them all by fixed signs.
    rows *= np.where(np.arange(width) % 2, -1.0, 1.0)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def spread(opened: Array, mixed: Array) -> Array:
    """(…, n, targets·numbers) as (…, n, targets·h), on the target's side."""
    rows = opened.shape[:-1]
    return np.asarray((opened.reshape(*rows, -1, len(mixed)) @ mixed).reshape(*rows, -1))


def gathered(gradient: Array, mixed: Array) -> Array:
    """The gradient by the hidden units' inputs, as the gradient by what was opened."""
    rows = gradient.shape[:-1]
    return np.asarray((gradient.reshape(*rows, -1, mixed.shape[1]) @ mixed.T).reshape(*rows, -1))


def widest(own: int, foreign: int) -> int:
    """The most numbers a target attribute with which a row opens fewer than there are foreign columns; 0: none."""
    return (foreign - 1) // own


def part(deviation: float, sources: int) -> float:
    """The deviation of one source's part. A target in league with the others is left with this alone."""
    return deviation / math.sqrt(sources)


def drawn(masks: Masks, deviation: float, bits: int, *shape: int) -> Ring:
    """Normal numbers with `bits` fractional bits as elements of the field, from the party's own secret draws."""
    first, second = ((masks.uniform(*shape) + 0.5) / ring.P for _ in range(2))
    normal = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)  # Box and Muller
    return ring.reduce(np.rint(normal * deviation * 2.0**bits).astype(np.int64))


@dataclass(frozen=True)
class RowNoiseAccount:
    """What all openings of a row together tell of it, in the terms of Gaussian differential privacy."""

    mu: float
    """Two rows that far apart are told apart as well as N(0, 1) and N(μ, 1); 1 is little, 6 is certainty."""
    epsilon: float
    delta: float


def accounted(deviation: float, openings: int, strength: float, delta: float = 1e-5) -> RowNoiseAccount:
    """For rows of a source that differ by one standard deviation in one attribute.

    `strength` is the norm of the weights by which that attribute enters all of a target's features. μ adds up as
    √(Σ μ²) over openings. The weights are taken as they were at the end; what a row tells through its part in the
    weights is not in it, and rows that differ by more are told apart more easily. So this is a floor, no guarantee.
    """
    mu = math.sqrt(openings) * strength / deviation
    return RowNoiseAccount(mu, gaussian_epsilon(mu, delta), delta)


def most_exposed(strengths: Array, own: Sequence[int], foreign: Sequence[int]) -> float:
    """The largest norm of weights by which one foreign attribute enters the features of these targets."""
    return float(np.sqrt(np.square(strengths[np.ix_(foreign, own)]).sum(1)).max(initial=0.0))


SECRET = KEY
"""Bytes of a shared secret. It is drawn anew at every start: an exchange repeated after a resume has new pads."""


def secret(masks: Masks) -> bytes:
    """For two sources; one draws it and sends it to the other."""
    return drawn_key(masks)


def pad(shared: bytes, target: int, phase: int, shape: Sequence[int]) -> Ring:
    """Uniform elements that follow from the secret (ChaCha20), the same for both who share it."""
    return KeyedMasks(subkey(shared, "veracausa pads 1", target), phase).uniform(*shape)


def padded(halves: Ring, me: int, target: int, phase: int, secrets: dict[int, bytes]) -> Ring:
    """What a source's answers to a target in a phase begin with, with its pads; each row of it is used once.

    `secrets` are those it shares with the other sources, by their numbers.
    """
    for other, shared in secrets.items():
        if other != target:
            drawn = pad(shared, target, phase, halves.shape)
            halves = ring.add(halves, drawn) if me < other else ring.subtract(halves, drawn)
    return halves
