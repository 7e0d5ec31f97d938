"""Rows that fit the sums, drawn at random: functions of one value lie on a curve, so all their sums tell of it.

The projection of a column uses one function of it. With M functions there are M times as many equations for the same
unknown rows. They are not linear, so rows are drawn one after the other (Gibbs), closer and closer to the sums. Too
close, a chain stays where it is: two chains run, and the attacker takes the distance at which they agree best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView
from veracausa.attacks.sums import ColumnCurve, fitted, span
from veracausa.registry import Options

DISTANCES = (2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.12)
"""How far sums may lie from those released, in deviations of one row's functions; smaller and smaller."""
CHAINS = 2
MOST_AT_ONCE, FEWEST_BLOCKS = 32, 60
_RIDGE = 1e-4
_NEWTON = 15
_INSIDE = 0.05


class CurveSamplingOptions(Options):
    sweeps: int = Field(10, ge=2)
    """Passes over all rows at each distance."""


@dataclass(frozen=True)
class _Curves:
    """All columns' tables of values and functions, made as long as the longest."""

    points: Array
    """(columns, grid, width): functions at each value, uncorrelated and of deviation 1."""
    chances: Array
    """(n, columns, grid): the logarithm of how likely each value is for each row, before any sum."""
    told: Array
    """(directions, columns·chains·width): the sums along each direction of the attacker's features."""
    noise: Array
    """(directions,): the variance of the noise on them."""


@column_attacks.register("curve_sampling", CurveSamplingOptions)
class CurveSampling(ColumnAttack):
    """The mean of rows that fit what own columns tell of them, the maps at home, and the sums of all functions."""

    needs = Grant.VALIDATOR | Grant.WEIGHTS
    uses = Grant.AUXILIARY
    about = "a party in league with the validator knows the source's functions too, and draws rows that fit all sums"
    opened, colluding = "sums", True
    order, drawn = 22, 3
    quick: ClassVar[Mapping[str, Any]] = {"sweeps": 4}
    options: CurveSamplingOptions

    def __init__(self, options: CurveSamplingOptions) -> None:
        super().__init__(options)
        self.said: dict[str, float] = {}

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "sums") or not view.own_features.shape[1]:
            return None
        basis, made, _ = span(view.own_features)
        curves = _prepared(view, basis, made)
        found = self._sampled(view, basis, curves)
        values = np.zeros((view.rows, view.columns))
        chosen = []
        for number, curve in enumerate(view.curves):
            responses = curve.responses
            means = found[:, :, :, number, : len(responses)] @ responses
            best = int(np.argmax([_agreement(*each) for each in means]))
            chosen.append(DISTANCES[best])
            values[:, curve.guesses] = means[best].mean(axis=0)
        self.said = {"mean_distance": float(np.mean(chosen))}
        return ColumnGuess(values, ordered=True)

    def notes(self) -> Mapping[str, float]:
        return self.said

    def _sampled(self, view: ColumnView, basis: Array, curves: _Curves) -> Array:
        """(distances, chains, n, columns, grid): how likely each value is for each row, the mean over later sweeps."""
        rng, sweeps = view.rng, self.options.sweeps
        columns, grid, width = curves.points.shape
        turned = np.ascontiguousarray(curves.points.swapaxes(1, 2))
        squares = np.square(curves.points).sum(axis=2)
        place = np.repeat(curves.chances.argmax(axis=2)[:, :, None], CHAINS, axis=2)
        state = curves.points[np.arange(columns)[:, None], place]
        left = curves.told - basis.T @ state.reshape(len(basis), -1)
        found = np.zeros((len(DISTANCES), CHAINS, len(basis), columns, grid), dtype=np.float32)
        # Rows of one block are drawn at the same time, as if the others of the block stayed: they are few among all.
        blocks = max(1, len(basis) // max(1, min(MOST_AT_ONCE, len(basis) // FEWEST_BLOCKS)))
        for number, distance in enumerate(DISTANCES):
            weighted = basis / (distance**2 + curves.noise)
            heights = (weighted * basis).sum(axis=1)
            for sweep in range(sweeps):
                uniform = rng.random((len(basis), columns, CHAINS, 1))
                for rows in np.array_split(rng.permutation(len(basis)), blocks):
                    pull = (weighted[rows] @ left).reshape(-1, columns, CHAINS, width)
                    pull += heights[rows, None, None, None] * state[rows]
                    chances = pull @ turned
                    chances += (curves.chances[rows] - 0.5 * heights[rows, None, None] * squares)[:, :, None]
                    chances = np.exp(chances - chances.max(axis=3, keepdims=True))
                    added = np.cumsum(chances, axis=3)
                    below = added < uniform[rows] * added[..., -1:]
                    drawn = np.minimum(below.sum(axis=3), grid - 1)
                    new = curves.points[np.arange(columns)[:, None], drawn]
                    left -= basis[rows].T @ (new - state[rows]).reshape(len(rows), -1)
                    state[rows] = new
                    if 2 * sweep >= sweeps:
                        found[number][:, rows] += (chances / added[..., -1:]).transpose(2, 0, 1, 3)
        return found / max(1, sweeps - (sweeps + 1) // 2)


def _agreement(one: Array, other: Array) -> float:
    """What the mean of two chains explains, as far as they themselves can tell.

    If both are what the sums leave likely, what they have in common is what they have in common with the truth.
    """
    common = float(((one - one.mean(0)) * (other - other.mean(0))).mean(axis=0).sum())
    return 1.5 * common - (float(one.var(axis=0).sum()) + float(other.var(axis=0).sum())) / 4


def _prepared(view: ColumnView, basis: Array, made: Array) -> _Curves:
    curves = view.curves
    apart = view.sums.noise * np.sqrt(np.square(made).sum(axis=0))
    told_first = made.T @ view.sums.cross[:, view.numbers]
    start = view.expected if hasattr(view, "expected") else fitted(basis, told_first, apart)
    grid, width = (max(curve.functions.shape[axis] for curve in curves) for axis in (0, 1))
    points = np.zeros((len(curves), grid, width))
    chances = np.full((view.rows, len(curves), grid), -np.inf)
    told = np.zeros((made.shape[1], len(curves), CHAINS, width))
    cross = view.sums.cross
    sizes = []
    for number, curve in enumerate(curves):
        share = curve.chances / curve.chances.sum()
        spread = (curve.functions * share[:, None]).T @ curve.functions
        whitening = np.linalg.cholesky(np.linalg.inv(spread + _RIDGE * np.trace(spread) * np.eye(len(spread))))
        length, own = curve.functions.shape
        points[number, :length, :own] = curve.functions @ whitening
        told[:, number, :, :own] = (made.T @ cross[:, curve.at] @ whitening)[:, None]
        chances[:, number, :length] = _likely(curve, start[:, curve.guesses])
        sizes.append(float(np.square(whitening).sum() / own))
    noise = apart**2 * float(np.mean(sizes))
    return _Curves(points, chances, told.reshape(made.shape[1], -1), noise)


def _likely(curve: ColumnCurve, expected: Array) -> Array:
    """(n, grid): the logarithm of how likely each value is, for what own columns say of each row.

    How frequent a value is among all rows, drawn narrower and moved so that its mean is what is expected of the row.
    """
    share = _smooth(curve.chances) if not curve.discrete else curve.chances / curve.chances.sum()
    responses = curve.responses
    spread = (np.square(responses) * share[:, None]).sum(axis=0)
    rest = np.maximum(0.02 * spread, spread - np.square(expected).mean(axis=0))
    if curve.kind == "nominal":
        apart = np.square(expected[:, None] - responses) / rest
        return np.asarray(np.log(np.maximum(share, 1e-12)) - 0.5 * apart.sum(axis=2))
    values = responses[:, 0]
    base = np.log(np.maximum(share, 1e-12)) - 0.5 * (1 / rest[0] - 1 / spread[0]) * values**2
    wanted = np.clip(expected[:, 0], values[0] + _INSIDE, values[-1] - _INSIDE)
    tilt = expected[:, 0] / rest[0]
    for _ in range(_NEWTON):
        likely = base + tilt[:, None] * values
        chances = np.exp(likely - likely.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        mean = chances @ values
        tilt = tilt + np.clip((wanted - mean) / np.maximum(chances @ values**2 - mean**2, 1e-3), -2, 2)
    return np.asarray(base + tilt[:, None] * values)


def _smooth(chances: Array) -> Array:
    """Shares of neighbouring values averaged: a table of few rows has gaps."""
    kernel = np.exp(-0.5 * (np.arange(-6, 7) / 2.5) ** 2)
    padded = np.convolve(chances, kernel, mode="same") + 1e-3 * chances.sum() / len(chances)
    return np.asarray(padded / padded.sum())
