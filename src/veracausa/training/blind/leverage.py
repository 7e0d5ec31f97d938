"""Rows that the receiver's own columns single out, and which therefore must not be part of the sums it opens.

The receiver opens Zᵀφ, Z its own columns and φ another party's. For any weights a it can compute (Z a)ᵀφ, and if Z a is
an indicator of one row, that is the row. It need not be a column: a constant less all common words is the rare word
that was left out. What decides is a row's leverage, h = z (ZᵀZ)⁺ zᵀ. It is the largest share that the row can have in
a combination of the columns of norm one, squared: 1/m for one of m rows with an indicator of their own.

A row left out has zeros in Z. Features are centred at home, so their sum over all rows is known to be zero, and the
all-ones column counts as one of Z whether it is sent or not: one row left out would be opened by the difference. So
rows are left out in groups of no fewer than are asked for, filled up with rows drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.errors import InputError

SMALLEST_EIGENVALUE = 1e-11
"""Of the largest, with columns of norm one: below it, a combination of columns is zero up to rounding."""
MOST_LEFT_OUT = 0.05
NEARLY = 0.75
"""Rows of so much of the largest leverage go along with those above it."""
ROUNDS = 20
WITH_LABELS = 1.15
"""Labels add some leverage. Features that are made fewer before labels are there have to leave so much room."""

Blocks = Callable[[], Iterator[Array]]


def heavy_rows(blocks: Blocks, least_rows: int, rng: np.random.Generator) -> Mask:
    """(n,): which rows to leave out, so that no leverage is above 1 / `least_rows`.

    `blocks` gives the receiver's columns as they go into the sums, rounding included, as often as it is asked. Memory
    holds one block and one flag a row. `rng` must be the party's own secret: who knows it can tell who was filled in.
    """
    rows = sum(len(block) for block in blocks())
    left_out = np.zeros(rows, dtype=bool)
    for _ in range(ROUNDS):
        # Flag by flag: numbers would take eight times the memory. Rows near the bound would mostly be above it in the
        # next round, without their neighbours.
        flags, above, start = [np.zeros(0, bool)], False, 0
        for part in _leverage_parts(blocks, left_out):
            free = ~left_out[start : start + len(part)]
            above |= bool((free & (part > (1 + 1e-9) / least_rows)).any())
            flags.append(free & (part > NEARLY / least_rows))
            start += len(part)
        if not above:
            return left_out
        left_out |= np.concatenate(flags)
        missing = least_rows - int(left_out.sum())
        if missing > 0:
            others = np.flatnonzero(~left_out)
            left_out[rng.choice(others, min(missing, len(others)), replace=False)] = True
        if left_out.sum() > max(MOST_LEFT_OUT * rows, least_rows):
            break
    raise InputError(
        f"blind training: the active party's own columns single out {int(left_out.sum())} of {rows} rows, so that sums "
        "would tell what others know of them; merge rare values, take fewer features (features.functions), set "
        "blind.epsilon, which covers such rows, or say blind.allow_small_n = true, which tells them"
    )


def singles_out(blocks: Blocks, labels: bool, least_rows: int) -> bool:
    """Whether `heavy_rows` would refuse these columns, or with `labels` these and any labels beside them."""
    try:
        heavy_rows(blocks, math.ceil((WITH_LABELS if labels else 1) * least_rows), np.random.default_rng(0))
    except InputError:
        return True
    return False


def leverages(blocks: Blocks, left_out: Mask) -> Array:
    """(n,): each row's leverage in [ones, columns], with zeros in the columns of rows that are left out."""
    return np.concatenate([np.zeros(0), *_leverage_parts(blocks, left_out)])


def _leverage_parts(blocks: Blocks, left_out: Mask) -> Iterator[Array]:
    gram = np.zeros((0, 0))
    for together in _with_ones(blocks, left_out):
        gram = together.T @ together if not gram.size else gram + together.T @ together
    if not gram.size:
        return
    norms = np.sqrt(np.diag(gram))
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    values, vectors = np.linalg.eigh(gram * scale[:, None] * scale)
    kept = values > SMALLEST_EIGENVALUE * values[-1]
    turn = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    for together in _with_ones(blocks, left_out):
        yield ((together @ turn) ** 2).sum(1)


def _with_ones(blocks: Blocks, left_out: Mask) -> Iterator[Array]:
    start = 0
    for block in blocks():
        stop = start + len(block)
        columns = np.where(left_out[start:stop, None], 0.0, block)
        yield np.concatenate([np.ones((len(block), 1)), columns], axis=1)
        start = stop
