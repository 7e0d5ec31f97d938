"""Known weights: who knows the weights at some step solves for the columns, batch after batch.

Three attacks differ in where the weights come from: a grant, a guess, or the validator of mode M1.
"""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView, Opened


@column_attacks.register("known_start")
class KnownStart(ColumnAttack):
    """Follows the first epochs: X = Z·W⁺ of a batch, then the weights' next step, which it knows because it sent it.

    The source draws the first weights from its system's entropy and nobody else learns them; this attack is granted
    them, as a target would have them if they followed from a seed that all know.
    """

    needs = Grant.FIRST_WEIGHTS
    about = "knows the first weights and solves for the columns"
    order = 11

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        return followed(view, view.first_weights, view.first)


@column_attacks.register("guessed_start")
class GuessedStart(ColumnAttack):
    """The same without the grant: it draws first weights as the source does, and has to hope."""

    about = "the same, but has to guess the first weights, which the source drew in secret"
    order = 7

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "first"):
            return None
        bound, shape = view.first_range, (view.columns, view.first[0].features.shape[1])
        return followed(view, view.rng.uniform(-bound, bound, shape), view.first)


def followed(view: ColumnView, weights: Array, opened: tuple[Opened, ...]) -> ColumnGuess:
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
    return ColumnGuess(values, ordered=True)


def solved(features: Array, weights: Array) -> Array:
    """X of X·W, by least squares."""
    return np.asarray(np.linalg.lstsq(weights.T, features.T, rcond=1e-10)[0].T)


@column_attacks.register("party_and_validator")
class ValidatorCollusion(ColumnAttack):
    """Takes the weights of the validator's first look, and goes on from there as with known first weights.

    In mode M2 the validator has no weights to give.
    """

    needs = Grant.VALIDATOR
    about = "solves for the columns with weights that the validator of mode M1 was sent"
    order = 12

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        return followed(view, *view.looked) if hasattr(view, "looked") else None
