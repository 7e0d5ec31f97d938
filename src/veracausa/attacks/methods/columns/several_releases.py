"""Several releases of the same rows: two that differ by a row give that row, and weighted ones are more equations each.

Making all functions anew hides a row no better: correlations of d columns with and without it have d·(d − 1)/2
differences for d values.

A ledger refuses a second release that was not agreed on. These attacks show what it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView
from veracausa.attacks.sums import ReleasedSums, nearest
from veracausa.registry import Options

ANEW = 0.5
"""Sums of squares of all columns that are nearer to the number of rows: the columns were standardised without the row.
Otherwise the row's own squares less 1 are missing."""
STARTS = 8
ROUNDING = 1e-3
"""The deviation of what rounding leaves of one product; more would only hide rows from the attacker."""


@column_attacks.register("row_difference")
class RowDifference(ColumnAttack):
    """The first direction of the difference of two releases, which is the row that one of them lacks."""

    needs = Grant.VALIDATOR | Grant.SECOND_RELEASE
    uses = Grant.WEIGHTS
    about = "the validator takes the difference of two releases, one of them without a row"
    breaks = "a second release that was not agreed on"
    opened, seat = "sums", "validator"
    order, drawn = 24, 4
    situations = ("a row less", "a row less, functions made anew")

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "second"):
            return None
        rows = []
        for number in range(len(view.targets)):
            one, other = view.second(number)
            if _made_anew(view, one, other):
                rows.append(_by_correlations(view, one, other))
            else:
                rows.append(_first_direction(view, one, other)[view.numbers])
        return ColumnGuess(np.stack(rows), ordered=True, at=view.targets)


def _made_anew(view: ColumnView, one: ReleasedSums, other: ReleasedSums) -> bool:
    """Whether columns were standardised again without the row: their sums of squares are the number of rows then."""
    if one.noise or other.noise:
        return False
    places = np.ix_(view.numbers, view.numbers)
    left = np.diag(one.inside[places]) / one.rows - np.diag(other.inside[places]) / other.rows
    return bool(np.abs(left).max() * one.rows < ANEW)


def _by_correlations(view: ColumnView, one: ReleasedSums, other: ReleasedSums) -> Array:
    """(columns,): the row z for which correlations without it are those of the sums less z·zᵀ·n/(n − 1)."""
    from scipy.optimize import least_squares

    places, n = np.ix_(view.numbers, view.numbers), one.rows
    whole, without = one.inside[places] / n, _correlations(other.inside[places])
    pairs = np.triu_indices(len(whole), 1)

    def apart(z: Array) -> Array:
        return np.asarray(n * (_correlations(whole - np.outer(z, z) / (n - 1)) - without)[pairs])

    level, turned = np.linalg.eigh(n * (_correlations(whole) - without))
    starts = [turned[:, -1] * math.sqrt(max(float(level[-1]), 1e-12)), *view.rng.standard_normal((STARTS, len(whole)))]
    row = min((least_squares(apart, start, max_nfev=200) for start in starts), key=lambda found: float(found.cost)).x
    # Sums of columns and squares tell a row from its negative, where squares are summed up.
    return np.asarray(min((row, -row), key=lambda each: _third_moments_apart(view, one, other, each)))


def _third_moments_apart(view: ColumnView, one: ReleasedSums, other: ReleasedSums, row: Array) -> float:
    """How far the sums of x_i·x_j² without the row are from those of the second release, by the first one."""
    n = one.rows
    found = 0.0
    whole = one.inside[np.ix_(view.numbers, view.numbers)]
    mean = -row / (n - 1)
    squares = np.diag(whole) - np.square(row) * n / (n - 1)
    deviations = np.sqrt(squares / (n - 1))
    for curve in view.curves if hasattr(view, "curves") else ():
        square = np.intersect1d(curve.at, view.positive)
        if curve.kind != "number" or not len(square):
            continue
        j = int(curve.guesses[0])
        third, after = (math.sqrt(2) * sums.inside[view.numbers, square[0]] for sums in (one, other))
        # Over the rows that are left, about their own means.
        left = third - row * row[j] ** 2 - 2 * mean[j] * (whole[:, j] - row * row[j])
        left += mean[j] ** 2 * -row - mean * (whole[j, j] - row[j] ** 2)
        left += 2 * mean * mean[j] * -row[j] - (n - 1) * mean * mean[j] ** 2
        found += float(np.square(left / deviations / deviations[j] ** 2 - after).sum())
    return found


def _correlations(gram: Array) -> Array:
    deviations = np.sqrt(np.maximum(np.diag(gram), 1e-12))
    return np.asarray(gram / np.outer(deviations, deviations))


def _first_direction(view: ColumnView, one: ReleasedSums, other: ReleasedSums) -> Array:
    """(functions,): the row whose products with itself the difference is; 0 where noise hides it."""
    gap = one.inside - other.inside
    level, directions = np.linalg.eigh((gap + gap.T) / 2)
    # The largest eigenvalue of noise alone is about 2σ√p.
    hidden = 2 * math.hypot(one.noise, other.noise) * math.sqrt(len(gap))
    if level[-1] <= hidden:
        return np.zeros(len(gap))
    row = directions[:, -1] * math.sqrt(float(level[-1] - hidden))
    both = np.stack([row, -row])
    # A row and its negative have the same products; only one of them lies on the curves, or has positive squares.
    if hasattr(view, "curves"):
        apart = np.square(nearest(view.curves, both)[0] - both).sum(axis=1)
        return np.asarray(both[apart.argmin()])
    return np.asarray(both[both[:, view.positive].sum(axis=1).argmax()])


@column_attacks.register("weighted_releases")
class WeightedReleases(ColumnAttack):
    """Solves for the source's rows: every weighted release has as many equations as the attacker has features."""

    needs = Grant.VALIDATOR | Grant.SECOND_RELEASE
    uses = Grant.AUXILIARY
    about = "a party in league with the validator solves for the source's rows with the sums of all resamples"
    breaks = "a release for every resample of the rows"
    opened, colluding = "sums", True
    order, drawn = 25, 6

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.said: dict[str, float] = {}

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "weighted") or not view.own_features.shape[1]:
            return None
        releases = (view.sums, *view.weighted())
        weights = [np.ones(view.rows) if each.weights is None else each.weights for each in releases]
        equations = np.concatenate([view.own_features * each[:, None] for each in weights], axis=1)
        told = np.concatenate([each.cross[:, view.numbers] for each in releases])
        start = view.expected if hasattr(view, "expected") else np.zeros((view.rows, view.columns))
        noise = view.sums.noise**2 + ROUNDING**2 * view.rows / 12
        rest = told - equations.T @ start
        self.said = {"releases": float(len(releases)), "equations_a_row": equations.shape[1] / view.rows}
        if equations.shape[1] > view.rows:
            square = equations @ equations.T + noise * np.eye(view.rows)
            return ColumnGuess(start + np.linalg.solve(square, equations @ rest), ordered=True)
        square = equations.T @ equations + noise * np.eye(equations.shape[1])
        return ColumnGuess(start + equations @ np.linalg.solve(square, rest), ordered=True)

    def notes(self) -> Mapping[str, float]:
        return self.said
