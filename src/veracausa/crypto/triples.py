"""Correlated randomness of one ordered pair, made ahead by encryption: products of rows with masks that hide weights.

The source has rows X, the target numbers that change at every step: its share S of the weights, and its gradients G.
The target draws U and V and gets, under the source's key, shares of X·U and Xᵀ·V. A step then only opens S − U and
G − V to the source, uniform numbers that are used once (Beaver's triples, for matrices): X·S = X·(S − U) + X·U.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
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
    """A target's half, of all asked batches one after the other."""

    weight_masks: Ring
    """U, (batches, columns, width)."""
    features: Ring
    """Its share of X·U, (rows, width)."""
    gradient_masks: Ring
    """V, (rows, width of gradients)."""
    increments: Ring
    """Its share of Xᵀ·V, (batches, columns, width of gradients)."""


@dataclass
class SourceTriples:
    """A source's half: its shares of the same products."""

    features: Ring
    increments: Ring


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
    none = np.zeros((0, 0, 0), dtype=np.int64)
    made, parts = TargetTriples(none, none, none, none), Parts()
    if needs.forward:
        rows = shape.rows(needs.forward)
        weights = masks.uniform(len(rows), shape.columns, shape.width)
        parts["forward"], made.features = for_weights.forward(needs.forward, weights, masks)
        made.weight_masks = weights
    if needs.backward:
        rows = shape.rows(needs.backward)
        gradients = masks.uniform(sum(rows), shape.gradient_width)
        parts["backward"], made.increments = for_gradients.backward(needs.backward, gradients, masks)
        made.gradient_masks = gradients
    return made, parts


def open_asked(shape: Shape, encryption: Encryption, needs: Needs, parts: Parts) -> SourceTriples:
    """The source's half, from what a target sent."""
    none = np.zeros((0, 0, 0), dtype=np.int64)
    made = SourceTriples(none, none)
    if needs.forward:
        rows = shape.rows(needs.forward)
        made.features = encryption.decrypt_forward(part(parts, "forward"), rows, shape.columns, shape.width)
    if needs.backward:
        rows = shape.rows(needs.backward)
        asked = part(parts, "backward")
        made.increments = encryption.decrypt_backward(asked, rows, shape.columns, shape.gradient_width)
    return made


def part(parts: Parts, name: str, kind: str = "triples") -> Bytes:
    """One part of a message; optional where it is declared, but not here."""
    if name not in parts:
        raise WireError(f"{kind}.{name}", "is missing")
    return parts[name]


def spans(rows: Sequence[int]) -> list[slice]:
    """Where each of so many rows lie, one batch after the other."""
    ends = np.cumsum([0, *rows]).tolist()
    return [slice(*ends[at : at + 2]) for at in range(len(rows))]


class OneTimePool(Generic[T]):
    """Hands out what was made for a batch, and never again: a mask that hides two numbers tells their difference."""

    def __init__(self, what: str, batches: Sequence[Hashable], made: Sequence[T]) -> None:
        self.what = what
        self._left: dict[Hashable, deque[T]] = {}
        for batch, entry in zip(batches, made, strict=True):
            self._left.setdefault(batch, deque()).append(entry)

    def take(self, batch: Hashable) -> T:
        if not self._left.get(batch):
            raise RunError(f"no {self.what} triple is left for batch {batch}: each is used once, and none was made")
        return self._left[batch].popleft()
