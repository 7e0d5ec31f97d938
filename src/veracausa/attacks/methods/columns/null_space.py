"""The validator alone, or with known rows: where fewer rows are left than functions, sums say what no row can be.

Rows can be turned among each other without any sum changing, so sums alone tell no row of many. Sums of fewer rows than
functions have directions in which all rows are 0. A row is then a point of the curves that lies in none of them, and
rows are at right angles to each other in the scale of the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView
from veracausa.attacks.sums import nearest
from veracausa.registry import Options

_EMPTY = 1e-8
"""A direction with less than this share of the largest one holds no row."""
_STEPS = 60
_AT_ONCE = 64
_FITS = 0.05
"""A row is found where it lies so far from the curves at most, in deviations of a function."""
_PATIENCE = 4
"""So many rounds of starts without a new row end the search."""


class NullSpaceOptions(Options):
    rounds: int = Field(40, ge=1)
    """Of 64 points from which the search for rows begins."""


class _RowsLeft(ColumnAttack):
    opened, seat = "sums", "validator"
    quick: ClassVar[Mapping[str, Any]] = {"rounds": 4}
    options: NullSpaceOptions

    def __init__(self, options: NullSpaceOptions) -> None:
        super().__init__(options)
        self.said: dict[str, float] = {}

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "sums"):
            return None
        known, features = self.known(view)
        left = np.setdiff1d(np.arange(view.rows), known)
        if not len(left):
            return None
        gram = view.sums.inside - features.T @ features
        # All functions have mean 0 over all rows, so the others' mean follows from the known rows. Rows that are cut to
        # a norm, where noise is added, have another one.
        mean = -features[:, view.numbers].sum(axis=0) / len(left) if not view.sums.noise else np.zeros(view.columns)
        values = np.tile(mean, (len(left), 1))
        level, turned = np.linalg.eigh((gram + gram.T) / 2)
        empty = turned[:, level < _EMPTY * max(float(level[-1]), 1e-300)]
        found = np.zeros((0, view.columns))
        if not view.sums.noise and empty.shape[1] > view.columns:
            kept = slice(empty.shape[1], None)
            found = _rows(view, turned[:, kept], np.sqrt(level[kept]), self.options.rounds)
            values[: len(found)] = found
        self.said = {"empty_directions": float(empty.shape[1]), "rows_found": len(found) / len(left)}
        return ColumnGuess(values, ordered=True, at=left, unordered_rows=True)

    def known(self, view: ColumnView) -> tuple[NDArray[np.int64], Array]:
        """Places of the rows that it knows, and their functions."""
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(view.sums.source)))

    def notes(self) -> Mapping[str, float]:
        return self.said


@column_attacks.register("null_space", NullSpaceOptions)
class NullSpace(_RowsLeft):
    """The validator alone: sums, the maps at home, and no row."""

    needs = Grant.VALIDATOR | Grant.WEIGHTS
    about = "the validator alone looks for rows that fit the sums"
    order = 18


@column_attacks.register("known_rows_left", NullSpaceOptions)
class KnownRowsLeft(_RowsLeft):
    """The validator takes the rows that it knows off the sums, and looks for the others in what is left."""

    needs = Grant.VALIDATOR | Grant.WEIGHTS | Grant.KNOWN_ROWS
    about = "the validator knows some rows of all parties, takes them off the sums, and looks for the others"
    order = 19
    situations = ("some rows known", "all rows known but one")

    def known(self, view: ColumnView) -> tuple[NDArray[np.int64], Array]:
        return view.known[0], view.known_features


def _rows(view: ColumnView, directions: Array, sizes: Array, rounds: int) -> Array:
    """(found, columns): points of the span of some directions that lie on all curves, each once.

    A point goes to the nearest points of the curves and back into the span, until it stays where it is.
    """
    spread, back = directions * sizes, directions / sizes
    known, found, idle = np.zeros((0, len(sizes))), [], 0
    for _ in range(rounds):
        if len(known) == len(sizes) or idle == _PATIENCE:
            break
        points = _unit(view.rng.standard_normal((_AT_ONCE, len(sizes))), known)
        for _ in range(_STEPS):
            rows = points @ spread.T
            # A row and its negative have the same sums; squares tell them apart.
            rows *= np.where(rows[:, view.positive].sum(axis=1) < 0, -1.0, 1.0)[:, None]
            points = _unit(nearest(view.curves, rows)[0] @ back, known)
        rows = points @ spread.T
        curve, values = nearest(view.curves, rows)
        apart = np.sqrt(np.square(curve - rows).mean(axis=1))
        before = len(known)
        for at in np.argsort(apart):
            if apart[at] < _FITS and len(known) < len(sizes) and (np.abs(known @ points[at]) < 0.5).all():
                known = np.concatenate([known, _unit(points[at : at + 1], known)])
                found.append(_guessed(view, values[at]))
        idle = idle + 1 if len(known) == before else 0
    return np.stack(found) if found else np.zeros((0, view.columns))


def _unit(points: Array, known: Array) -> Array:
    """Points of length 1, at right angles to the known ones."""
    rest = points - points @ known.T @ known
    return np.asarray(rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1e-12))


def _guessed(view: ColumnView, values: Array) -> Array:
    """Values of all columns as a guess has them."""
    row = np.zeros(view.columns)
    for curve, value in zip(view.curves, values, strict=True):
        row[curve.guesses] = curve.responses[np.abs(curve.values - value).argmin()]
    return row
