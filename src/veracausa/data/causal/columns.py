"""Columns made fit for a causal fit, and what was done to them in words: missing, constant, collinear, discrete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from veracausa.arrays import Array, Mask
from veracausa.errors import InputError

Missing = Literal["median", "drop", "refuse"]
Unusable = Literal["drop", "refuse"]
Collinear = Literal["keep", "drop", "refuse"]

DISCRETE = 10
"""A column of whole numbers with at most so many different ones is called discrete."""
NAMING = 20
"""From so many rows on, a whole number that never occurs twice is suspected to be a row's name."""
COLLINEAR = 1e-6
"""A standardised column of which no larger share than this is left, given the ones before it, follows from them."""


@dataclass(frozen=True)
class PreparedColumns:
    """Columns to fit, and which they were."""

    values: Array
    """(rows kept, columns kept)"""
    names: tuple[str, ...]
    kept: tuple[int, ...]
    """Positions of the columns among those given; the others take no part and stay without edges."""
    binary: tuple[bool, ...]
    """Which of the kept columns hold two values only."""
    mean: Array
    scale: Array
    notes: tuple[str, ...]


def standardised(values: Array, train_rows: int | None = None) -> tuple[Array, Array, Array]:
    """Columns of mean 0 and deviation 1 by the first `train_rows` rows, with both; a constant is only centred."""
    train = values[:train_rows]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    return (values - mean) / scale, mean, scale


def without_missing(values: Array, names: Sequence[str], how: Missing) -> tuple[Array, tuple[str, ...]]:
    """Values without nan, and what was done in words."""
    absent = np.isnan(values)
    counts = absent.sum(axis=0)
    if not counts.any():
        return values, ()
    empty = [name for name, count in zip(names, counts, strict=True) if count == len(values)]
    if empty:
        raise InputError(f"column {empty[0]!r} holds no value at all; leave it out")
    if how == "refuse":
        at = int(counts.argmax())
        raise InputError(
            f"column {names[at]!r} lacks {counts[at]} of {len(values)} values; "
            "set missing = 'median' or 'drop', or fill them in"
        )
    if how == "drop":
        whole = values[~absent.any(axis=1)]
        if len(whole) < 2:
            raise InputError(f"every one of the {len(values)} rows lacks a value; set missing = 'median'")
        return whole, (f"{len(values) - len(whole)} of {len(values)} rows dropped for a missing value",)
    filled = np.where(absent, np.nanmedian(values, axis=0), values)
    lacking = zip(names, counts, strict=True)
    return filled, tuple(f"{name}: {count} missing values set to the median" for name, count in lacking if count)


def prepare(
    values: ArrayLike,
    names: Sequence[str],
    *,
    standardise: bool = True,
    missing: Missing = "median",
    constant: Unusable = "drop",
    collinear: Collinear = "keep",
    train_rows: int | None = None,
) -> PreparedColumns:
    """Columns ready to fit; scales come from the first `train_rows` rows."""
    table = np.array(values, dtype=np.float64)
    if np.isinf(table).any():
        at = int(np.isinf(table).any(axis=0).argmax())
        raise InputError(f"column {names[at]!r} holds an infinite value; correct it or leave the column out")
    table, notes = without_missing(table, names, missing)
    if len(table) < 2:
        raise InputError(f"{len(table)} row is too few to learn from; give at least 2")
    kept = np.flatnonzero(table[:train_rows].std(axis=0) > 1e-12 * (1 + np.abs(table).max(axis=0)))
    for at in sorted(set(range(len(names))) - set(kept.tolist())):
        if constant == "refuse":
            raise InputError(f"column {names[at]!r} is constant; leave it out, or set constant = 'drop'")
        notes += (f"{names[at]}: constant, takes no part and stays without edges",)
    if not len(kept):
        raise InputError("every column is constant; there is nothing to learn from")
    used = len(table) if train_rows is None else min(train_rows, len(table))
    dependent = _dependent(standardised(table[:, kept], train_rows)[0][:train_rows])
    if dependent and len(kept) >= used:
        # Then it says nothing of single columns: any so many of them span all rows.
        said = f"{len(kept)} columns for {used} rows to learn from: edges can not be told apart"
        if collinear == "refuse":
            raise InputError(f"{said}; give more rows or fewer columns, or set collinear = 'keep'")
        left = f", and {len(dependent)} columns take no part" if collinear == "drop" else ""
        notes += (f"{said}{left}; give more rows or fewer columns",)
    else:
        notes += _said_of_dependent([names[at] for at in kept[dependent].tolist()], collinear)
    if collinear == "drop":
        kept = np.delete(kept, dependent)
    table = table[:, kept]
    kinds = [len(np.unique(column[:10_000])) for column in table.T]
    whole = [bool((column == np.round(column)).all()) for column in table.T]
    for at, kind, integral in zip(kept.tolist(), kinds, whole, strict=True):
        if kind == 2 or (integral and kind <= DISCRETE):
            notes += (f"{names[at]}: discrete, {kind} different values, fitted as a number",)
        elif integral and len(table) >= NAMING and len(np.unique(table[:, kept == at])) == len(table):
            notes += (
                f"{names[at]}: a different whole number in every row; if it only names the rows, leave it out "
                f"(--set data.id={names[at]})",
            )
    mean, scale = np.zeros(len(kept)), np.ones(len(kept))
    if standardise:
        table, mean, scale = standardised(table, train_rows)
    chosen = tuple(int(at) for at in kept)
    return PreparedColumns(
        table, tuple(names[at] for at in chosen), chosen, tuple(kind == 2 for kind in kinds), mean, scale, notes
    )


def _said_of_dependent(names: Sequence[str], collinear: Collinear) -> tuple[str, ...]:
    notes = []
    for name in names:
        said = f"{name}: follows linearly from the columns before it"
        if collinear == "refuse":
            raise InputError(f"column {said}; leave it out, or set collinear = 'keep' or 'drop'")
        gone = ", takes no part and stays without edges"
        notes.append(said + (gone if collinear == "drop" else "; its edges and theirs can not be told apart"))
    return tuple(notes)


def _dependent(columns: Array) -> list[int]:
    """Columns that lie in the span of the earlier ones, by Gram and Schmidt, twice for the rounding."""
    basis = np.zeros((len(columns), 0))
    found = []
    for at in range(columns.shape[1]):
        rest = columns[:, at]
        length = np.linalg.norm(rest)
        for _ in range(2):
            rest = rest - basis @ (basis.T @ rest)
        left = np.linalg.norm(rest)
        if left <= COLLINEAR * length:
            found.append(at)
        elif basis.shape[1] < len(columns):
            basis = np.column_stack([basis, rest / left])
    return found


@dataclass(frozen=True)
class PreparedTable:
    """What a fit is made of: columns that are ready, in one order, and what is known of them."""

    train: Array
    """(n, d)"""
    held_out: Array
    names: tuple[str, ...]
    binary: Mask
    required: Mask
    forbidden: Mask

    def resampled(self, rng: np.random.Generator) -> PreparedTable:
        """As many rows, drawn with replacement; a held-out row is never trained on."""
        train, held_out = (rows[rng.integers(0, len(rows), len(rows))] for rows in (self.train, self.held_out))
        return PreparedTable(train, held_out, self.names, self.binary, self.required, self.forbidden)
