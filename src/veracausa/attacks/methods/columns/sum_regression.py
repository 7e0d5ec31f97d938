"""Read a partner's rows from sums by regression: own rows and the sums give the projection of the partner's columns.

The fitted value of a row holds what the columns have in common among all people, and a share of the row's own value:
its leverage. Only that share is told by the sums. The rest, rows of other people would tell as well.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView
from veracausa.attacks.sums import fitted, span
from veracausa.registry import Options


class _Projection(ColumnAttack):
    opened, colluding = "sums", True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.said: dict[str, float] = {}

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "sums") or not view.own_features.shape[1] or not self.ready(view):
            return None
        basis, made, leverage = span(view.own_features)
        self.said = {"mean_leverage": float(leverage.mean()), "largest_leverage": float(leverage.max())}
        told = made.T @ view.sums.cross[:, view.numbers]
        noise = view.sums.noise * np.sqrt(np.square(made).sum(axis=0))
        return ColumnGuess(self.fitted(view, basis, told, noise), ordered=True)

    def ready(self, view: ColumnView) -> bool:
        return True

    def fitted(self, view: ColumnView, basis: Array, told: Array, noise: Array) -> Array:
        """All rows, from what the sums tell along each direction of the basis, and its noise."""
        raise NotImplementedError

    def notes(self) -> Mapping[str, float]:
        return self.said


@column_attacks.register("sum_regression")
class ColumnSumRegression(_Projection):
    """The least squares fit of every column of the source on the attacker's own features."""

    needs = Grant.VALIDATOR
    about = "a party in league with the validator fits the source's columns to its own by the sums"
    order, drawn = 20, 1

    def fitted(self, view: ColumnView, basis: Array, told: Array, noise: Array) -> Array:
        return fitted(basis, told, noise)


@column_attacks.register("sum_correction")
class SumCorrection(_Projection):
    """What rows of other people say of each row, moved to where the sums say it must lie."""

    needs = Grant.VALIDATOR | Grant.AUXILIARY
    about = "the same party begins with what rows of other people say of each row, and corrects it by the sums"
    order, drawn = 21, 2

    def ready(self, view: ColumnView) -> bool:
        return hasattr(view, "expected")

    def fitted(self, view: ColumnView, basis: Array, told: Array, noise: Array) -> Array:
        start = view.expected
        rest = np.maximum(1e-6, 1 - start.var(axis=0))
        share = rest / (rest + noise[:, None] ** 2)
        return np.asarray(start + basis @ (share * (told - basis.T @ start)))
