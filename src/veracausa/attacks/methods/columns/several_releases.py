"""Several releases of the same rows: two that differ by a row give that row, and weighted ones are more equations each.

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
        rows = [_first_direction(view, *view.second(number)) for number in range(len(view.targets))]
        return ColumnGuess(np.stack(rows)[:, view.numbers], ordered=True, at=view.targets)


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
