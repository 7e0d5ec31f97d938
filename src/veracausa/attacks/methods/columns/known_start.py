"""Known initialisation: who knows the first weights solves for the columns, batch after batch."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import ColumnGrant, FeatureAttack, Guess, Opened, View


@feature_attacks.register("known_start")
class KnownStart(FeatureAttack):
    """Follows the first epochs: X = Z·W⁺ of a batch, then the weights' next step, which it knows because it sent it.

    The source draws the first weights from its system's entropy and nobody else learns them; this attack is granted
    them, as a target would have them if they followed from a seed that all know.
    """

    needs = ColumnGrant.FIRST_WEIGHTS
    about = "knows the first weights and solves for the columns"

    def guess(self, view: View) -> Guess | None:
        assert view.first is not None
        return followed(view, *view.first)


@feature_attacks.register("guessed_start")
class GuessedStart(FeatureAttack):
    """The same without the grant: it draws first weights as the source does, and has to hope."""

    about = "the same, but has to guess the first weights, which the source drew in secret"

    def guess(self, view: View) -> Guess | None:
        if view.first is None:
            return None
        weights, opened = view.first
        bound = np.abs(weights).max()
        return followed(view, view.rng.uniform(-bound, bound, weights.shape), opened)


def followed(view: View, weights: Array, opened: tuple[Opened, ...]) -> Guess:
    """The rows of all these batches, from the weights before the first of them."""
    values = np.full((view.rows, view.columns), np.nan)
    weights = weights.copy()
    for batch in opened:
        values[batch.rows] = solved(batch.features, weights)
        weights += values[batch.rows].T @ batch.steps
        if batch.factors is not None:
            shape = (*batch.factors.shape, -1)
            weights = (weights.reshape(shape) * batch.factors[..., None]).reshape(weights.shape)
    seen = np.isfinite(values).all(1)
    values[~seen] = values[seen].mean(0)
    return Guess(values, ordered=True)


def solved(features: Array, weights: Array) -> Array:
    """X of X·W, by least squares."""
    return np.asarray(np.linalg.lstsq(weights.T, features.T, rcond=1e-10)[0].T)
