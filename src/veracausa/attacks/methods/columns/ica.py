"""Independent component analysis of the features: of all columns that would fit, the least Gaussian ones."""

from __future__ import annotations

import warnings

import numpy as np
from pydantic import Field

from veracausa.attacks import column_attacks
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView, beside, directions
from veracausa.registry import Options


class ICAOptions(Options):
    iterations: int = Field(500, ge=1)


@column_attacks.register("ica", ICAOptions)
class ICA(ColumnAttack):
    """FastICA (Hyvärinen 1999) on all epochs, which together hold every column.

    It works where columns are independent and not normal; causes and effects are not.
    """

    about = "looks for the least Gaussian directions of all features"
    order, drawn, colluding, on_sums = 2, 4, True, True
    options: ICAOptions

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        from sklearn.decomposition import FastICA

        white = directions(beside(view.history), view.columns)
        if not white.size:
            return None
        model = FastICA(
            whiten="unit-variance", max_iter=self.options.iterations, random_state=int(view.rng.integers(2**31))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where it does not converge, its last guess counts
            found = model.fit_transform(white)
        return ColumnGuess(np.asarray(found, dtype=np.float64))
