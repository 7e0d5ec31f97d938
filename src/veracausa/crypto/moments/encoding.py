"""A party's features as integers, block by block, with refusals where a value would not fit; and exact sums of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto.moments.plan import MomentPlan
from veracausa.crypto.ring import Small
from veracausa.errors import InputError

Blocks = Callable[[], Iterator[Array]]
"""Gives a party's rows from the first one on, as often as it is called, cut as the plan says."""

_SHORTER = 1 - 2.0**-40
"""Keeps a clipped row within its norm, whatever floating point does."""


def cut(rows: Array, block_rows: int) -> Blocks:
    """Rows in memory as blocks."""
    return lambda: (rows[at : at + block_rows] for at in range(0, len(rows), block_rows))


def encoded_blocks(plan: MomentPlan, party: str, blocks: Blocks) -> Iterator[Small]:
    """All rows as integers; other numbers of rows than the plan's are refused."""
    given = blocks()
    for number, size in enumerate(plan.blocks):
        block = next(given, None)
        if block is None:
            raise InputError(f"moments: {party!r} has fewer than the {plan.rows} rows of the plan; align the ids again")
        yield encode_block(plan, party, block, size, number)
    if next(given, None) is not None:
        raise InputError(f"moments: {party!r} has more than the {plan.rows} rows of the plan; align the ids again")


def encode_block(plan: MomentPlan, party: str, block: Array, size: int, number: int = 0) -> Small:
    """Rows as integers, shortened to the plan's norm if there is one.

    An error names a column, and nothing of a row: it reaches the partners.
    """
    if block.shape != (size, plan.widths[party]):
        raise InputError(
            f"moments: block {number} of {party!r} has shape {'×'.join(map(str, block.shape))}, "
            f"the plan says {size}×{plan.widths[party]}"
        )
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(block) <= plan.limit).all(axis=0)
    if bad.any():
        at = int(bad.argmax())
        if not np.isfinite(block[:, at]).all():
            raise InputError(f"moments: feature {at} of {party!r} holds values that are not numbers; fill them at home")
        raise InputError(
            f"moments: feature {at} of {party!r} holds values beyond the agreed limit {plan.limit:g}; clip it at home"
        )
    # In rows, however it came: a party's rows are hashed and sent in that order.
    scaled = np.ascontiguousarray(block, dtype=np.float64) * 2.0**plan.value_bits
    if plan.clip is None:
        return np.rint(scaled)
    bound = plan.clip * 2.0**plan.value_bits
    norms = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
    # Cut towards 0: rounding could lengthen a row beyond its norm.
    return np.trunc(scaled * np.where(norms > bound * _SHORTER, bound * _SHORTER / np.maximum(norms, 1e-300), 1.0))


def exact_product(a: Small, b: Small, most: int) -> NDArray[np.int64]:
    """aᵀ·b of integers up to `most`, exact: a float64 holds sums over so many rows."""
    rows = max(1, (1 << 53) // max(1, most) ** 2)
    total = np.zeros((a.shape[1], b.shape[1]), dtype=np.int64)
    for at in range(0, len(a), rows):
        total += (a[at : at + rows].T @ b[at : at + rows]).astype(np.int64)
    return total


@dataclass(frozen=True)
class ColumnSupport:
    """On how many rows each column rests.

    An indicator of few rows tells these rows' other features by its sums. Features come centred and scaled, so what
    counts is how many rows differ from the column's most frequent value.
    """

    rows: NDArray[np.int64]
    """That differ from the most frequent value."""
    effective: Array
    """(Σ d²)² / Σ d⁴ of these differences: an indicator of r rows has r, a column with few huge values has few."""

    def thin(self, least: int) -> list[int]:
        """Columns that rest on fewer rows than this; constant ones, which tell no row, are not among them."""
        return [int(at) for at in np.flatnonzero((self.rows > 0) & (self.rows < least))]


def column_support(blocks: Iterable[Array], least: int) -> ColumnSupport:
    """The support of every column; exact wherever it is below `least`, in one pass over the blocks.

    A value that all but fewer than `least` rows have is the median of any 2·`least` rows.
    """
    first: list[Array] = []
    rows = 0
    given = iter(blocks)
    for block in given:
        first.append(np.asarray(block, dtype=np.float64))
        rows += len(block)
        if rows >= 2 * least:
            break
    if not rows:
        raise InputError("moments: there are no rows whose columns could be checked")
    start = np.concatenate(first)
    usual = np.sort(start, axis=0)[(rows - 1) // 2] if rows >= 2 * least else _modes(start)
    counts = np.zeros(start.shape[1], dtype=np.int64)
    squares, fourths = np.zeros(start.shape[1]), np.zeros(start.shape[1])
    for block in chain((start,), given):
        apart = np.abs(np.asarray(block, dtype=np.float64) - usual)
        counts += (apart > 0).sum(axis=0)
        squares += np.square(apart).sum(axis=0)
        fourths += np.power(apart, 4).sum(axis=0)
    return ColumnSupport(counts, np.square(squares) / np.maximum(fourths, 1e-300))


def _modes(rows: Array) -> Array:
    found = []
    for column in rows.T:
        values, counts = np.unique(column, return_counts=True)
        found.append(values[counts.argmax()])
    return np.array(found)


def default_clip(width: int) -> float:
    """√width: what a row of features of spread 1 has on average."""
    return math.sqrt(width)
