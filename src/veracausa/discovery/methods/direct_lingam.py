"""DirectLiNGAM (Shimizu et al. 2011): linear data with non-Gaussian noise, one source after the other.

The source is the column that is least dependent on what is left of the others given it, by the pairwise likelihood
ratio of Hyvärinen and Smith (2013).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.linear_fits import along_order
from veracausa.discovery.methods import method

NORMAL = (1 + np.log(2 * np.pi)) / 2
"""Entropy of the standard normal distribution."""


@method("direct_lingam")
@dataclass(kw_only=True, eq=False, repr=False)
class DirectLiNGAM(CausalDiscovery):
    """Strength = the coefficient of an adaptive lasso chosen by BIC, as in sortnregress."""

    threshold: Threshold = 0.0

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        left = list(range(data.values.shape[1]))
        rest, order = data.values - data.values.mean(axis=0), []
        while len(left) > 1 and not time_is_up():
            source = left[least_dependent(rest[:, left])]
            order.append(source)
            left.remove(source)
            found = rest[:, source]
            rest = rest - np.outer(found, found @ rest / max(float(found @ found), 1e-300))
        if len(left) > 1:
            self.notes_ += ("direct_lingam: out of time; the last columns of the order are in the order of the table",)
        return along_order(data.values, [*order, *left], lambda: False)


def least_dependent(columns: Array) -> int:
    """The column with the most evidence, over all pairs, that it is no effect (Hyvärinen and Smith 2013, eq. 6)."""
    deviation = columns.std(axis=0)
    standard = columns / np.where(deviation > 1e-12, deviation, 1)
    correlation = standard.T @ standard / len(standard)
    alone = entropy(standard)
    d = standard.shape[1]
    given = np.zeros((d, d))
    for cause in range(d):
        rest = standard - np.outer(standard[:, cause], correlation[cause])
        spread = np.sqrt(np.maximum(1 - correlation[cause] ** 2, 1e-12))
        given[cause] = entropy(rest / spread)
    # Row: cause. Larger: the joint entropy is smaller in this direction.
    evidence = (alone[None, :] + given.T) - (alone[:, None] + given)
    return int((-(np.minimum(0, evidence) ** 2).sum(axis=1)).argmax())


def entropy(columns: Array) -> Array:
    """Each standardised column's entropy by the maximum entropy approximation (Hyvärinen 1998)."""
    even = np.log(np.cosh(columns)).mean(axis=0) - 0.37457
    odd = (columns * np.exp(-(columns**2) / 2)).mean(axis=0)
    return np.asarray(NORMAL - 79.047 * even**2 - 7.4129 * odd**2)
