"""What a party makes of its own columns at home: functions of each column, of which only sums over rows leave it.

A number becomes smooth functions, ordered from straight to wiggly, so that a search can take the first few of them. A
nominal column becomes one function for each category but one. All functions of a column have mean 0 and deviation 1
and are uncorrelated with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.errors import InputError

ColumnKind = Literal["number", "binary", "nominal"]

LEVELS = (1, 2, 3, 5, 8, 12, 16)
"""So many functions of a cause a search may take, the smoothest ones."""
CLIP = 6.0
"""A number further from the median than so many robust deviations is moved there: one row must not be a function."""
TAIL = 8.0
"""The largest value of a function, in deviations."""
LEAST = 20
"""A category, or whatever else a function marks, has at least so many rows."""
FEW_VALUES = 8
"""A column of so few different numbers has no room for splines."""
PRODUCTS = ((0, 0), (0, 1), (1, 0))
"""Which functions of two columns are multiplied."""
POWERS = 2
"""Squares and cubes of a number, by which skew and tails are told."""


@dataclass(frozen=True)
class NodeLayout:
    """One column of the table as the sums see it: which of a party's features are its, in the order given here."""

    name: str
    kind: ColumnKind
    functions: int
    """Features that may explain another column, the smoothest first."""
    powers: int = 0
    """Features that follow: the square and the cube of the number, for a number."""
    mask: int = 0
    """1: one more follows, that is 1 where the value is there and 0 where it is missing."""

    @property
    def width(self) -> int:
        return self.functions + self.powers + self.mask

    @property
    def response(self) -> int:
        """Of so many features, the first ones, a regression explains the variance."""
        return self.functions if self.kind == "nominal" else 1

    @property
    def levels(self) -> tuple[int, ...]:
        """How many of the functions a regression may take."""
        if self.kind == "nominal":
            return (self.functions,)
        return (*(level for level in LEVELS if level < self.functions), self.functions)


@dataclass(frozen=True)
class PairLayout:
    """Products of functions of two columns of one party: so many features, behind those of all columns."""

    first: int
    second: int
    width: int


@dataclass(frozen=True)
class Expansion:
    """A party's columns as features, then products of two columns' functions."""

    features: Array
    """(n, width)."""
    nodes: tuple[NodeLayout, ...]
    scales: Array
    """(d,): what one unit of each column's first function is in the column's own unit; nan for a nominal one."""
    notes: tuple[str, ...] = ()
    pairs: tuple[PairLayout, ...] = ()

    @property
    def width(self) -> int:
        return int(self.features.shape[1])


def functions_for(rows: int, columns: int, wanted: int | None = None, rows_a_column: int = 10) -> int:
    """How many functions a number gets: more with more rows, and so few that sums do not tell rows.

    `columns` is the largest number of columns that two parties have together.
    """
    if wanted is not None:
        return wanted
    by_rows = 4 if rows < 300 else 6 if rows < 800 else 8 if rows < 2500 else 10 if rows < 6000 else 12
    room = rows // (rows_a_column * max(1, columns)) - POWERS
    return max(1, min(by_rows, room))


def expand(
    values: Array,
    names: Sequence[str],
    kinds: Sequence[ColumnKind],
    functions: int,
    powers: bool = True,
    products: bool = False,
) -> Expansion:
    """All columns of one party. nan stands for a missing value. `products`: of every two numbers, too."""
    blocks, nodes, scales, notes = [], [], [], []
    for column, name, kind in zip(values.T, names, kinds, strict=True):
        missing = np.isnan(column)
        here = column[~missing]
        if kind == "nominal":
            made, scale, note = _categories(here, name)
        elif len(np.unique(here)) <= FEW_VALUES:
            made, scale, note = _few_values(here, functions)
        else:
            made, scale, note = _curves(here, functions)
        more = _powers(here) if powers and kind == "number" else np.zeros((len(here), 0))
        both = np.concatenate([made, more], axis=1)
        block = np.zeros((len(column), both.shape[1]))
        block[~missing] = both
        if missing.any():
            block = np.column_stack([block, ~missing])
        blocks.append(block)
        nodes.append(NodeLayout(name, kind, made.shape[1], more.shape[1], int(missing.any())))
        scales.append(scale)
        notes += [note] if note else []
    pairs: list[PairLayout] = []
    if products:
        bases = [block[:, : node.functions] for block, node in zip(blocks, nodes, strict=True)]
        for first, second in combinations([at for at, node in enumerate(nodes) if node.kind != "nominal"], 2):
            product = _products(
                bases[first], bases[second], np.asarray(np.isfinite(values[:, [first, second]]).all(axis=1))
            )
            if product.shape[1]:
                blocks.append(product)
                pairs.append(PairLayout(first, second, product.shape[1]))
    return Expansion(np.concatenate(blocks, axis=1), tuple(nodes), np.array(scales), tuple(notes), tuple(pairs))


def _products(first: Array, second: Array, here: Mask) -> Array:
    """What functions of two columns do together and not one by one, the smoothest products first."""
    made: list[Array] = []
    base = np.column_stack([np.ones(int(here.sum())), first[here], second[here]])
    for a, b in PRODUCTS:
        if a >= first.shape[1] or b >= second.shape[1]:
            continue
        product = np.clip(first[here, a] * second[here, b], -TAIL, TAIL)
        rest = product - base @ np.linalg.lstsq(base, product, rcond=None)[0]
        if rest.std() > 0.05 * max(product.std(), 1e-300):
            column = np.zeros(len(here))
            column[here] = rest / rest.std()
            made.append(column)
    return np.column_stack([np.zeros((len(here), 0)), *made])


def clipped(column: Array) -> Array:
    """The numbers, with those far outside moved to the edge."""
    middle = np.median(column)
    spread = max(column.std() * 0.2, 1.4826 * float(np.median(np.abs(column - middle))))
    return np.clip(column, middle - 2 * CLIP * spread, middle + 2 * CLIP * spread)


def _powers(column: Array) -> Array:
    """Square and cube of the standardised number."""
    x = clipped(column)
    x = (x - x.mean()) / x.std()
    return np.column_stack([x**2, x**3])


def _few_values(column: Array, functions: int) -> tuple[Array, float, str | None]:
    """Polynomials: as many as there are values but one."""
    count = min(functions, len(np.unique(column)) - 1)
    return _orthonormal(np.column_stack([column**power for power in range(1, count + 1)])), float(column.std()), None


def _categories(column: Array, name: str) -> tuple[Array, float, str | None]:
    """One function for each category but the most frequent; rare ones are merged."""
    codes, counts = np.unique(column, return_counts=True)
    common = codes[counts >= LEAST]
    rare = int(counts[counts < LEAST].sum())
    groups = [column == code for code in common]
    note = None
    if len(codes) > len(common):
        note = f"{name}: {len(codes) - len(common)} categories of fewer than {LEAST} rows are merged"
        if rare >= LEAST or not len(common):
            groups.append(~np.isin(column, common))
        else:
            groups[int(np.argmax(counts[counts >= LEAST]))] |= ~np.isin(column, common)
    if len(groups) < 2:
        raise InputError(f"column {name!r}: no two categories have {LEAST} rows each; leave it out")
    groups.pop(int(np.argmax([group.sum() for group in groups])))
    return _orthonormal(np.column_stack(groups).astype(np.float64)), float("nan"), note


def _curves(column: Array, functions: int) -> tuple[Array, float, str | None]:
    """The number itself, then functions that bend, the least rough ones first (Demmler and Reinsch)."""
    from scipy.interpolate import BSpline
    from scipy.linalg import eigh

    x = clipped(column)
    scale = float(x.std())
    x = (x - x.mean()) / scale
    if functions == 1:
        return x[:, None], scale, None
    inner = 2 * functions + 4
    quantiles = np.quantile(x, np.linspace(0, 1, inner // 2 + 2)[1:-1])
    even = np.linspace(x.min(), x.max(), inner // 2 + 2)[1:-1]
    knots = _apart(np.sort(np.concatenate([quantiles, even])), x.min(), x.max())
    t = np.concatenate([[x.min()] * 4, knots, [x.max()] * 4])
    basis = np.asarray(BSpline.design_matrix(x, t, 3).todense())
    grid = np.unique(np.concatenate([np.linspace(x.min(), x.max(), 400), np.quantile(x, np.linspace(0, 1, 200))]))
    second = BSpline(t, np.eye(basis.shape[1]), 3).derivative(2)(grid)
    widths = np.gradient(grid)
    rough = second.T @ (second * widths[:, None])
    gram = basis.T @ basis / len(x)
    gram += np.eye(len(gram)) * 1e-7 * np.trace(gram) / len(gram)
    _, vectors = eigh(rough, gram, subset_by_index=(0, min(functions + 2, len(gram) - 1)))
    bent = basis @ vectors[:, 1:]
    bent = np.clip(bent / np.maximum(bent.std(axis=0), 1e-12), -TAIL, TAIL)
    return _orthonormal(np.column_stack([x, bent]))[:, :functions], scale, None


def _apart(knots: Array, low: float, high: float) -> Array:
    """Knots without those that lie too close to another or to an end."""
    least = 1e-3 * (high - low)
    kept: list[float] = []
    for knot in knots:
        if knot - low > least and high - knot > least and (not kept or knot - kept[-1] > least):
            kept.append(float(knot))
    return np.array(kept)


def _orthonormal(columns: Array) -> Array:
    """Of mean 0, deviation 1 and uncorrelated, in the given order; what follows from earlier ones is left out."""
    made: list[Array] = []
    for column in columns.T:
        rest = column - column.mean()
        start = rest.std()
        for _ in range(2):
            for other in made:
                rest = rest - other * (rest @ other) / len(rest)
        if rest.std() > 1e-3 * max(start, 1e-300):
            made.append(rest / rest.std())
    return np.column_stack(made)


def column_kinds(values: Array, names: Sequence[str], nominal: Sequence[str] = ()) -> tuple[ColumnKind, ...]:
    """Which columns are numbers, which have two values, which are nominal."""
    kinds: list[ColumnKind] = []
    for column, name in zip(values.T, names, strict=True):
        different = len(np.unique(column[~np.isnan(column)]))
        kinds.append("binary" if different == 2 else "nominal" if name in nominal else "number")
    return tuple(kinds)
