"""Correlated randomness of one ordered pair, made ahead by encryption: products of rows with masks that hide weights.

The source has rows X, the target numbers that change at every step: its share S of the weights, and its gradients G.
The target draws U and V and gets, under the source's key, shares of X·U and Xᵀ·V. A step then only opens S − U and
G − V to the source, uniform numbers that are used once (Beaver's triples, for matrices): X·S = X·(S − U) + X·U.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from veracausa.crypto.backends.base import Bytes, EncryptedRows, Encryption
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import Ring
from veracausa.errors import RunError, WireError

T = TypeVar("T")
Parts = dict[str, Bytes]


@dataclass(frozen=True)
class Needs:
    """What a phase of the protocol will use up."""

    forward: tuple[int, ...] = ()
    """Batches; one that comes twice will be used twice."""
    backward: tuple[int, ...] = ()
    squares: int = 0
    """How often all norms will be opened."""


@dataclass
class TargetTriples:
    """A target's half; of each asked batch one entry."""

    weight_masks: list[Ring]
    """U, (columns, width)."""
    features: list[Ring]
    """Its share of X·U, (rows, width)."""
    gradient_masks: list[Ring]
    """V, (rows, width of gradients)."""
    increments: list[Ring]
    """Its share of Xᵀ·V, (columns, width of gradients)."""


@dataclass
class SourceTriples:
    """A source's half: its shares of the same products."""

    features: list[Ring]
    increments: list[Ring]


@dataclass(frozen=True)
class Shape:
    """What both ends of an ordered pair know of the products."""

    sizes: tuple[int, ...]
    """Rows of every batch."""
    columns: int
    """Of the source."""
    width: int
    """Of the target's share of the weights."""
    gradient_width: int

    def rows(self, batches: Sequence[int]) -> list[int]:
        return [self.sizes[batch] for batch in batches]


def ask(
    shape: Shape, for_weights: EncryptedRows, for_gradients: EncryptedRows, needs: Needs, masks: Masks
) -> tuple[TargetTriples, Parts]:
    """Draw a target's half, and what the source needs to open its own."""
    made, parts = TargetTriples([], [], [], []), Parts()
    if needs.forward:
        rows = shape.rows(needs.forward)
        weights = masks.uniform(len(rows), shape.columns, shape.width)
        parts["forward"], kept = for_weights.forward(needs.forward, weights, masks)
        made.weight_masks, made.features = list(weights), _by_batch(kept, rows)
    if needs.backward:
        rows = shape.rows(needs.backward)
        gradients = masks.uniform(sum(rows), shape.gradient_width)
        parts["backward"], shares = for_gradients.backward(needs.backward, gradients, masks)
        made.gradient_masks, made.increments = _by_batch(gradients, rows), list(shares)
    return made, parts


def open_asked(shape: Shape, encryption: Encryption, needs: Needs, parts: Parts) -> SourceTriples:
    """The source's half, from what a target sent."""
    made = SourceTriples([], [])
    if needs.forward:
        rows = shape.rows(needs.forward)
        opened = encryption.decrypt_forward(part(parts, "forward"), rows, shape.columns, shape.width)
        made.features = _by_batch(opened, rows)
    if needs.backward:
        rows = shape.rows(needs.backward)
        opened = encryption.decrypt_backward(part(parts, "backward"), rows, shape.columns, shape.gradient_width)
        made.increments = list(opened)
    return made


def part(parts: Parts, name: str, kind: str = "triples") -> Bytes:
    """One part of a message; optional where it is declared, but not here."""
    if name not in parts:
        raise WireError(f"{kind}.{name}", "is missing")
    return parts[name]


def _by_batch(values: Ring, rows: Sequence[int]) -> list[Ring]:
    return np.split(values, np.cumsum(rows)[:-1])


class OneTimePool(Generic[T]):
    """Hands out what was made for a batch, and never again: a mask that hides two numbers tells their difference."""

    def __init__(self, what: str, batches: Sequence[int], made: Sequence[T]) -> None:
        self.what = what
        self._left: dict[int, deque[T]] = {}
        for batch, entry in zip(batches, made, strict=True):
            self._left.setdefault(batch, deque()).append(entry)

    def take(self, batch: int) -> T:
        if not self._left.get(batch):
            raise RunError(f"no {self.what} triple is left for batch {batch}: each is used once, and none was made")
        return self._left[batch].popleft()
