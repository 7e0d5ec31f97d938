"""The validator alone, or with known rows: where fewer rows are left than functions, sums say what no row can be.

Rows can be turned among each other without any sum changing, so sums alone tell no row of many. Sums of fewer rows than
functions have directions in which all rows are 0. A row is then a point of the curves that lies in none of them.
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
from veracausa.attacks.sums import ColumnCurve
from veracausa.registry import Options

_EMPTY = 1e-8
"""A direction with less than this share of the largest one holds no row."""
_STEPS = 40
_FITS = 0.05
"""A row is found where it lies so far from the empty directions at most, in deviations of a function."""


class NullSpaceOptions(Options):
    starts: int = Field(200, ge=1)
    """Points from which the search for rows begins."""


class _RowsLeft(ColumnAttack):
    opened, seat = "sums", "validator"
    quick: ClassVar[Mapping[str, Any]] = {"starts": 40}
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
        # All functions have mean 0 over all rows, so the others' mean follows from the known rows.
        mean = -features[:, view.numbers].sum(axis=0) / len(left)
        values = np.tile(mean, (len(left), 1))
        level, turned = np.linalg.eigh((gram + gram.T) / 2)
        empty = turned[:, level < _EMPTY * max(float(level[-1]), 1e-300)]
        found = np.zeros((0, view.columns))
        if not view.sums.noise and empty.shape[1] > view.columns:
            found = _rows(view, empty, self.options.starts)[: len(left)]
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


def _rows(view: ColumnView, empty: Array, starts: int) -> Array:
    """(found, columns): points of all curves with nothing in the empty directions, each once."""
    curves = view.curves
    chances = [curve.chances / curve.chances.sum() for curve in curves]
    found: list[Array] = []
    for _ in range(starts):
        point = np.array([view.rng.choice(c.values, p=p) for c, p in zip(curves, chances, strict=True)])
        point, rest = _solved(curves, empty, point)
        row = np.zeros(view.columns)
        for curve, value in zip(curves, point, strict=True):
            row[curve.guesses] = value if curve.kind != "nominal" else curve.of(np.array([value]))[0][: len(row)]
        near = any(np.abs(row - other).max() < _FITS for other in found)
        if rest < _FITS and not near:
            found.append(row)
    return np.stack(found) if found else np.zeros((0, view.columns))


def _solved(curves: tuple[ColumnCurve, ...], empty: Array, point: Array) -> tuple[Array, float]:
    """Levenberg and Marquardt's steps on all numbers; categories stay as they were drawn."""
    moving = [number for number, curve in enumerate(curves) if curve.kind == "number"]
    damping, rest, slopes = 1e-2, *_at(curves, empty, point)
    for _ in range(_STEPS):
        slope = slopes[:, moving]
        step = np.linalg.solve(slope.T @ slope + damping * np.eye(len(moving)), -slope.T @ rest)
        trial = point.copy()
        for number, change in zip(moving, step, strict=True):
            values = curves[number].values
            trial[number] = np.clip(point[number] + np.clip(change, -1, 1), values[0], values[-1])
        new, new_slopes = _at(curves, empty, trial)
        if new @ new < rest @ rest:
            point, rest, slopes, damping = trial, new, new_slopes, damping / 3
        else:
            damping *= 4
        if rest @ rest < 1e-8 or damping > 1e8:
            break
    return point, float(np.sqrt(rest @ rest / empty.shape[1]))


def _at(curves: tuple[ColumnCurve, ...], empty: Array, point: Array) -> tuple[Array, Array]:
    """(directions,) what a point has in the empty directions, and (directions, columns) how that changes."""
    total, slopes = np.zeros(empty.shape[1]), np.zeros((empty.shape[1], len(curves)))
    for number, (curve, value) in enumerate(zip(curves, point, strict=True)):
        part = empty[curve.at]
        total += curve.of(np.array([value]))[0] @ part
        if curve.kind == "number":
            at = int(np.clip(np.searchsorted(curve.values, value), 1, len(curve.values) - 1))
            rise = curve.functions[at] - curve.functions[at - 1]
            slopes[:, number] = rise / (curve.values[at] - curve.values[at - 1]) @ part
    return total, slopes
