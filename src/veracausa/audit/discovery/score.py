"""How near a guess is to a source's columns, and what somebody who opened nothing reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks.columns.base import Guess

EXACT = 0.99
"""From this correlation on a column counts as read."""


@dataclass(frozen=True)
class ColumnScore:
    """|correlation| with the true columns."""

    by_attribute: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.by_attribute))

    @property
    def most(self) -> float:
        """Of the attribute that is read best."""
        return float(np.max(self.by_attribute))

    @property
    def read(self) -> float:
        """The share of attributes that are read."""
        return float(np.mean(np.array(self.by_attribute) >= EXACT))


def correlations(a: Array, b: Array) -> Array:
    """(columns of a, columns of b): |correlation|; 0 for what does not vary, or is no number."""
    a, b = (np.asarray(columns - columns.mean(0)) for columns in (a, b))
    lengths = np.sqrt(np.square(a).sum(0))[:, None] * np.sqrt(np.square(b).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.abs(a.T @ b) / lengths
    return np.asarray(np.nan_to_num(found, nan=0.0, posinf=0.0))


def scored(guess: Guess, truth: Array) -> ColumnScore:
    """Of an ordered guess column by column; else of the matching that adds up to the most (the Hungarian method)."""
    found = correlations(guess.values, truth)
    if guess.ordered:
        return ColumnScore(tuple(float(value) for value in np.diag(found)))
    return ColumnScore(matched(found))


def matched(found: Array) -> tuple[float, ...]:
    """Each true column's |correlation| in the best matching of guesses to columns; 0 where guesses are too few."""
    from scipy.optimize import linear_sum_assignment

    best = np.zeros(found.shape[1])
    guesses, columns = linear_sum_assignment(found, maximize=True)
    best[columns] = found[guesses, columns]
    return tuple(float(value) for value in best)


def random_guess(truth: Array, rng: np.random.Generator, draws: int = 20) -> ColumnScore:
    """Normal numbers, matched like any other guess; the mean over a few draws."""
    drawn = [matched(correlations(rng.standard_normal(truth.shape), truth)) for _ in range(draws)]
    return ColumnScore(tuple(float(value) for value in np.mean(drawn, axis=0)))


def best_own(own: Array, truth: Array) -> ColumnScore:
    """Every true column beside the attacker's own column that is most like it: nothing was opened for that.

    Which column that is, the attacker does not know; it is told here, so this is more than a blind guess.
    """
    return ColumnScore(tuple(float(value) for value in correlations(own, truth).max(0)))
