"""UnSplit (Erdoğan et al. 2022) on features: columns and weights are guessed by turns until their product fits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from pydantic import Field

from veracausa.arrays import Array
from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import FeatureAttack, Guess, View
from veracausa.attacks.columns.subspace import flat
from veracausa.registry import Options


class FeatureUnSplitOptions(Options):
    restarts: int = Field(4, ge=1)
    turns: int = Field(40, ge=1)
    steps: int = Field(20, ge=1)
    """Of Adam, on the columns and then on the weights, in every turn."""
    rate: float = Field(0.05, gt=0)
    prior: float = Field(0.1, ge=0)
    """How much columns are held to mean zero and variance one."""


@feature_attacks.register("unsplit", FeatureUnSplitOptions)
class FeatureUnSplit(FeatureAttack):
    """Knows the features and how many columns there are. X·W = (X·A)(A⁻¹·W) for every invertible A: nothing but the
    prior and the start decides which of all these columns it finds."""

    about = "guesses columns and weights by turns until their product fits the features"
    options: FeatureUnSplitOptions

    def guess(self, view: View) -> Guess | None:
        if not view.last.any():
            return None
        return Guess(alternate(self.options, view, flat(view.last)))


def alternate(
    options: FeatureUnSplitOptions,
    view: View,
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
