"""What table maps know of a party's columns: a bounded sample of rows, counts of 0/1 columns, rare words merged.

A column that is 1 in a few rows, or 0 in a few, would open these rows: its product with another party's features is
their sum over those rows. So no 0/1 column may have fewer than `min_rows` rows on either side, and no two may differ
in fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features.base import FitContext, RowColumn

BLOCK = 65_536
"""Rows at a time, where all of them lie in memory."""


@dataclass(frozen=True)
class Survey:
    """What one pass over a party's rows keeps of them, however many there are."""

    rows: int
    sample: Array
    """(m, features): all rows, or a uniform sample of as many as were asked for."""
    together: Array
    """(features, features) of the 0/1 features: how many rows have both."""
    flags: tuple[int, ...]
    """Which features are 0/1 by their kind: words and missing values."""


def survey(
    blocks: Callable[[], Iterator[Tensor]], columns: Sequence[RowColumn], limit: int, context: FitContext, rows: int = 0
) -> Survey:
    """One pass over the rows. The same rows and generator give the same sample, however they are cut into blocks."""
    flags = tuple(at for column in columns if column.kind != "number" for at in column.at)
    together = np.zeros((len(flags), len(flags)))
    kept, order = np.zeros((0, 0), np.float32), np.zeros(0)
    seen = 0
    for block in blocks():
        values = block.numpy()
        if not np.isfinite(values).all():
            raise InputError("a feature map was given values that are not finite; correct the table")
        ones = values[:, flags].astype(np.float64)
        together += ones.T @ ones
        # A row stays if its random number is among the smallest: a uniform sample without knowing how many come.
        drawn = torch.rand(len(values), generator=context.rng, dtype=torch.float64).numpy()
        kept = np.concatenate([kept, values]) if len(order) else values
        order = np.concatenate([order, drawn])
        if len(order) > limit:
            chosen = np.sort(np.argpartition(order, limit)[:limit])
            kept, order = kept[chosen], order[chosen]
        seen += len(values)
        context.progress(min(seen / rows, 1.0) if rows else 0.5)
    if not seen:
        raise InputError("a feature map was given no rows; a party needs rows of its own to learn from")
    return Survey(seen, kept.astype(np.float64), together, flags)


def merged_flags(found: Survey, columns: Sequence[RowColumn], min_rows: int) -> tuple[list[list[int]], list[str]]:
    """The 0/1 features that may be used, each as the row's features it adds up, and what a user should know.

    The rarest words of a column are put together until they have `min_rows` rows. The commonest word of a column is
    left out: the constant less the others says the same. A feature that differs from an earlier one in fewer rows is
    left out too.
    """
    groups: list[list[int]] = []
    notes: list[str] = []
    for column in columns:
        if column.kind == "number":
            continue
        added, merged = _column_groups(found, column, min_rows)
        if merged:
            notes.append(
                f"column {column.name!r}: {merged} rare {_plural(column, merged)} merged (under {min_rows} rows)"
            )
        groups += added
    return _apart(found, groups, min_rows, notes), notes


def _plural(column: RowColumn, count: int) -> str:
    word = "value" if column.kind == "category" else "missing value"
    return word if count == 1 else f"{word}s"


def _column_groups(found: Survey, column: RowColumn, min_rows: int) -> tuple[list[list[int]], int]:
    """One column's words as groups of at least `min_rows` rows, without the commonest, and how many were merged."""
    place = {at: number for number, at in enumerate(found.flags)}
    counts = sorted((float(found.together[place[at], place[at]]), at) for at in column.at)
    if column.kind == "missing":
        count, at = counts[0]
        usable = min(count, found.rows - count) >= min_rows
        return ([[at]] if usable else []), int(not usable)
    joined: list[int] = []
    total = 0.0
    rare = 0
    while counts and (counts[0][0] < min_rows or 0 < total < min_rows):
        count, at = counts.pop(0)
        total += count
        rare += count < min_rows
        joined.append(at)
    sets = [(count, [at]) for count, at in counts] + ([(total, sorted(joined))] if joined else [])
    sets.sort(key=lambda group: (group[0], group[1]))
    # Without its commonest group a column of one group says nothing, and is left out.
    return sorted(group for count, group in sets[:-1] if count >= min_rows), rare


def _apart(found: Survey, groups: list[list[int]], min_rows: int, notes: list[str]) -> list[list[int]]:
    """The groups, without those that are nearly an earlier one, or nearly all that an earlier one is not."""
    place = {at: number for number, at in enumerate(found.flags)}
    kept: list[list[int]] = []
    for group in groups:
        rows = [place[at] for at in group]
        own = float(found.together[np.ix_(rows, rows)].sum())
        near = False
        for other in kept:
            columns = [place[at] for at in other]
            theirs = float(found.together[np.ix_(columns, columns)].sum())
            both = float(found.together[np.ix_(rows, columns)].sum())
            differ = own + theirs - 2 * both
            near |= min(differ, found.rows - differ) < min_rows
        if near:
            notes.append(f"feature {group}: left out, it differs from another one in fewer than {min_rows} rows")
        else:
            kept.append(group)
    return kept


def flag_values(rows: Array, groups: Sequence[Sequence[int]]) -> Array:
    """(n, groups) of 0 and 1."""
    if not groups:
        return np.zeros((len(rows), 0))
    return np.stack([rows[:, list(group)].sum(1) for group in groups], axis=1).astype(np.float64)


def number_places(columns: Sequence[RowColumn]) -> list[tuple[str, int, int | None]]:
    """Name and place of every number, and where its missing values are marked."""
    missing = {column.name: column.at[0] for column in columns if column.kind == "missing"}
    return [(column.name, column.at[0], missing.get(column.name)) for column in columns if column.kind == "number"]


def unnamed(columns: Sequence[RowColumn], width: int) -> tuple[RowColumn, ...]:
    """The columns as given, or, where a table came without, every feature as a number."""
    return tuple(columns) or tuple(RowColumn(str(at), "number", (at,)) for at in range(width))


def checked_rows(rows: Tensor, width: int) -> Array:
    """(n, width) float64 of rows to map; another shape is refused."""
    if rows.ndim != 2 or rows.shape[1] != width:
        raise InputError(f"the feature map was learnt from rows of {width} values, not of {tuple(rows.shape[1:])}")
    return rows.numpy().astype(np.float64)
