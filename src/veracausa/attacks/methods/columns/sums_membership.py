"""Is this row among those that were summed up? From the sums alone, by somebody who knows the row and the functions."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView

_JITTER = 1e-6


@column_attacks.register("sums_membership")
class SumsMembership(ColumnAttack):
    """Rows that were summed up lie a little nearer to the sums that they are part of."""

    needs = Grant.VALIDATOR | Grant.KNOWN_ROWS | Grant.WEIGHTS
    about = "the validator knows a row of all parties, and asks whether it is among those summed up"
    opened, seat = "sums", "validator"
    order = 23
    situations = ("members and others",)

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "sums") or not hasattr(view, "people"):
            return None
        whole = view.sums.inside / view.sums.rows
        found = {
            "leverage": -_distance(view.people, whole),
            # Without the directions that noise or rounding fills.
            "leverage, strong directions": -_distance(view.people, whole, 0.1),
        }
        return ColumnGuess(np.zeros((0, view.columns)), membership=found)


def _distance(people: Array, moments: Array, least: float = _JITTER) -> Array:
    """(people,): how far each lies out, by the moments of all."""
    level, turned = np.linalg.eigh((moments + moments.T) / 2)
    level = np.maximum(level, least * max(float(level[-1]), 1e-30))
    return np.asarray(np.square(people @ turned) @ (1 / level))
