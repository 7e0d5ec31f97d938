"""Sums over rows as an attacker has them, and the algebra of attacks on them.

A party in league with the receiver knows its own features A exactly, and of a partner's features F the sums Aᵀ·F. That
is the projection of F on the span of A: as many numbers of every function as A has columns, for n rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array

NOTHING = 1e-9
"""A direction with less than this share of the largest one is rounding."""


FEW_VALUES = 20
"""A column of so few values is tabulated at each of them."""


@dataclass(frozen=True)
class ReleasedSums:
    """One release: sums over rows of products of functions, of the attacker's columns and of the source's."""

    gram: Array
    """(p, p), without the attacker's own part of the noise."""
    own: NDArray[np.int64]
    """Which of them are the attacker's."""
    source: NDArray[np.int64]
    """Which of them are the source's."""
    rows: int
    noise: float = 0.0
    """The deviation of what is left of the noise on each sum; 0 without differential privacy."""
    weights: Array | None = None
    """(n,): how often each row counts; None: once."""
    places: NDArray[np.int64] | None = None
    """Which rows were summed up; None: all."""

    @property
    def cross(self) -> Array:
        """(own, functions)."""
        return self.gram[np.ix_(self.own, self.source)]

    @property
    def inside(self) -> Array:
        """(functions, functions) of the source."""
        return self.gram[np.ix_(self.source, self.source)]


@dataclass(frozen=True)
class ColumnCurve:
    """What a party makes of one column: a table of values and of the functions at each of them."""

    kind: Literal["number", "binary", "nominal"]
    at: NDArray[np.int64]
    """(width,): which of the source's functions these are."""
    values: Array
    """(grid,): of mean 0 and deviation 1 over the rows; of a nominal column the numbers of its categories."""
    functions: Array
    """(grid, width)."""
    chances: Array
    """(grid,): how frequent each value is."""
    guesses: NDArray[np.int64]
    """Which of the view's columns are guessed of it: one, or of a nominal column one for each category but one."""

    @property
    def discrete(self) -> bool:
        """Whether the table has all values that there are."""
        return self.kind != "number" or len(self.values) <= FEW_VALUES

    @property
    def responses(self) -> Array:
        """(grid, guesses): the values as guesses have them."""
        return self.values[:, None] if self.kind != "nominal" else self.functions[:, : len(self.guesses)]

    def of(self, column: Array) -> Array:
        """(n, width): the functions of a column in the units of `values`."""
        if self.kind == "nominal":
            return np.asarray(self.functions[np.abs(column[:, None] - self.values).argmin(axis=1)])
        return np.column_stack([np.interp(column, self.values, each) for each in self.functions.T])


def span(own: Array) -> tuple[Array, Array, Array]:
    """(n, r) an orthonormal basis of some features, (own, r) how it is made of them, (n,) the rows' leverages.

    A row's leverage is the share of a partner's value there that the sums tell by themselves.
    """
    level, turned = np.linalg.eigh(own.T @ own)
    kept = level > NOTHING * max(float(level[-1]), 1e-300) if len(level) else np.zeros(0, dtype=bool)
    made = turned[:, kept] / np.sqrt(level[kept])
    basis = own @ made
    return basis, made, np.square(basis).sum(axis=1)


def fitted(basis: Array, told: Array, noise: Array) -> Array:
    """(n, columns): the projection of columns on a basis, from (directions, columns) sums with (directions,) noise.

    Where noise is, a direction counts by how far it stands out of it (James and Stein).
    """
    size = np.maximum(np.square(told).mean(axis=1), 1e-300)
    return np.asarray(basis @ (np.maximum(0.0, 1 - noise**2 / size)[:, None] * told))


def nearest(curves: tuple[ColumnCurve, ...], rows: Array) -> tuple[Array, Array]:
    """(points, functions) the nearest point of every curve, and (points, columns) the values there."""
    found, values = rows.copy(), np.zeros((len(rows), len(curves)))
    for number, curve in enumerate(curves):
        apart = np.square(rows[:, None, curve.at] - curve.functions).sum(axis=2)
        place = apart.argmin(axis=1)
        found[:, curve.at], values[:, number] = curve.functions[place], curve.values[place]
    return found, values
