"""DirectLiNGAM (Shimizu et al. 2011): linear data with non-Gaussian noise, one source after the other.

The source is the column that is least dependent on what is left of the others given it, by the pairwise likelihood
ratio of Hyvärinen and Smith (2013).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veracausa.arrays import Array
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.line_evidence import sources_first
from veracausa.discovery.linear_fits import along_order
from veracausa.discovery.methods import method


@method("direct_lingam")
@dataclass(kw_only=True, eq=False, repr=False)
class DirectLiNGAM(CausalDiscovery):
    """Strength = the coefficient of an adaptive lasso chosen by BIC, as in sortnregress."""

    threshold: Threshold = 0.0

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        order, left = sources_first(data.values, time_is_up)
        if len(left) > 1:
            self.notes_ += ("direct_lingam: out of time; the last columns of the order are in the order of the table",)
        return along_order(data.values, [*order, *left], lambda: False)
