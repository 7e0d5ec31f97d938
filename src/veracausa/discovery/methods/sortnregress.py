"""sortnregress (Reisach et al. 2021, 2023): order the columns by variance or by R², regress each on those before it.

It shows how much of a benchmark's causal order lies in the scale of its columns; a method should beat it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.linear_fits import along_order
from veracausa.discovery.methods import method
from veracausa.metrics.graphs import r2_given_others
from veracausa.seeding import derive

STANDARDISED = 1.25
"""Variances within this factor of each other are those of standardised columns: their order is chance."""


@method("sortnregress")
@dataclass(kw_only=True, eq=False, repr=False)
class SortNRegress(CausalDiscovery):
    """Strength = the coefficient of a lasso chosen by BIC, as in adaptive-lasso regression."""

    by: Literal["variance", "r2"] = "variance"
    # The method lives on the scale of the columns as they come.
    standardise: bool = False

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> NDArray[np.float64]:
        values = data.values - data.values.mean(axis=0)
        d = values.shape[1]
        if self.by == "r2":
            order = np.argsort(r2_given_others(values), kind="stable")
        else:
            variance = values.var(axis=0)
            order = np.argsort(variance, kind="stable")
            if variance.max() < STANDARDISED * variance.min():
                order = np.random.default_rng(derive(self.seed, "sortnregress")).permutation(d)
                self.notes_ += ("sortnregress: the columns are standardised, their order is a random one",)
        return along_order(values, order, time_is_up)
