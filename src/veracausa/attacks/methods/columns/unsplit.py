"""UnSplit (Erdoğan et al. 2022) on features: columns and weights are guessed by turns until their product fits.

Two attacks more know the strengths of all edges, so that weights are only free on spheres of those radii.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from pydantic import Field

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView, flat
from veracausa.registry import Options


class FeatureUnSplitOptions(Options):
    restarts: int = Field(4, ge=1)
    turns: int = Field(40, ge=1)
    steps: int = Field(20, ge=1)
    """Of Adam, on the columns and then on the weights, in every turn."""
    rate: float = Field(0.05, gt=0)
    prior: float = Field(0.1, ge=0)
    """How much columns are held to mean zero and variance one."""


QUICK = {"restarts": 1, "turns": 15}


@column_attacks.register("unsplit", FeatureUnSplitOptions)
class FeatureUnSplit(ColumnAttack):
    """Knows the features and how many columns there are. X·W = (X·A)(A⁻¹·W) for every invertible A: nothing but the
    prior and the start decides which of all these columns it finds."""

    about = "guesses columns and weights by turns until their product fits the features"
    order, drawn, colluding, on_sums = 1, 3, True, True
    quick = QUICK
    options: FeatureUnSplitOptions

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not view.last.any():
            return None
        return ColumnGuess(alternate(self.options, view, flat(view.last)))


def alternate(
    options: FeatureUnSplitOptions,
    view: ColumnView,
    features: Array,
    project: Callable[[Array], Array] = lambda weights: weights,
) -> Array:
    """The columns of the restart that fits best; `project` puts weights back to where they may lie."""
    rng = view.rng
    best, least = np.zeros((view.rows, view.columns)), math.inf
    for _ in range(options.restarts):
        x = rng.standard_normal((view.rows, view.columns))
        w = project(features.std() * rng.standard_normal((view.columns, features.shape[1])) / math.sqrt(view.columns))
        columns, weights = Adam(x, options.rate), Adam(w, options.rate * float(features.std() or 1.0))
        for _ in range(options.turns):
            for _ in range(options.steps):
                columns.step(_by_columns(x, w, features, options.prior)[1])
            for _ in range(options.steps):
                weights.step(x.T @ (x @ w - features) / features.size)
                w[:] = project(w)
        reached = _by_columns(x, w, features, options.prior)[0]
        if reached < least:
            best, least = x, reached
    return best


def _by_columns(x: Array, w: Array, z: Array, prior: float) -> tuple[float, Array]:
    """The loss, relative to the features' variance, and its gradient by the columns."""
    n, count = x.shape
    size = 1 / max(float(np.square(z).sum()), 1e-30)
    rest = x @ w - z
    mean = x.mean(0)
    centred = x - mean
    excess = np.square(centred).mean(0) - 1
    loss = float(np.square(rest).sum()) * size + prior * float(np.square(mean).sum() + np.square(excess).sum()) / count
    gradient = 2 * size * rest @ w.T + prior * 2 / (n * count) * (mean + 2 * excess * centred)
    return loss, gradient


class Adam:
    """Changes an array in place (Kingma and Ba 2015)."""

    def __init__(self, values: Array, rate: float) -> None:
        self.values, self.rate, self.count = values, rate, 0
        self.first, self.second = np.zeros_like(values), np.zeros_like(values)

    def step(self, gradient: Array) -> None:
        self.count += 1
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (np.square(gradient) - self.second)
        up, down = self.first / (1 - 0.9**self.count), self.second / (1 - 0.999**self.count)
        self.values -= self.rate * up / (np.sqrt(down) + 1e-12)


class _OnSpheres(ColumnAttack):
    options: FeatureUnSplitOptions

    def strengths(self, view: ColumnView) -> Array:
        """(columns, targets): the lengths that the weights' blocks must have."""
        raise NotImplementedError

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "strengths") or not view.last.any():
            return None
        radius = self.strengths(view)[..., None]

        def on_spheres(weights: Array) -> Array:
            blocks = weights.reshape(len(weights), radius.shape[1], -1)
            length = np.linalg.norm(blocks, axis=2, keepdims=True)
            return np.asarray((blocks * radius / np.maximum(length, 1e-12)).reshape(weights.shape))

        return ColumnGuess(alternate(self.options, view, flat(view.last), on_spheres), ordered=True)


@column_attacks.register("norm_aware", FeatureUnSplitOptions)
class NormAware(_OnSpheres):
    """A party alone has the strengths: while only the group lasso acts, κ = 1 − η·λ/B tells B.

    Who is in league with the validator of mode M2 has the same numbers. They are of named attributes, and absent edges
    are among them: so the guesses come in order.
    """

    about = "unsplit with the strengths of all edges known, which the factors give away"
    order, drawn, colluding = 3, 2, True
    quick = QUICK

    def strengths(self, view: ColumnView) -> Array:
        return view.strengths


@column_attacks.register("norm_averaging", FeatureUnSplitOptions)
class NormAveraging(_OnSpheres):
    """For noise on strengths: hundreds of looks tell what one with a small part of the noise would."""

    about = "norm-aware, with the strengths of all looks in the second half of the refit averaged"
    order = 4

    def strengths(self, view: ColumnView) -> Array:
        return view.mean_strengths
