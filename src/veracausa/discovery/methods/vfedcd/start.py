"""The graph that a search may start from: that of the moments, of the rows that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from veracausa.arrays import Array, Mask
from veracausa.data.causal import CausalData
from veracausa.discovery.methods.moments.estimator import MomentSearch

LINES = ("linear", "lingam")
"""Models of straight lines. Networks tell no order of these, and what moments say of their noise does, if anything."""


def moments_graph(train: Array, names: Sequence[str], **given: Any) -> tuple[Mask, bool]:
    """(d, d): the graph of training rows (n, d) alone, because held-out rows judge its order; and whether it is lines.

    Of lines nobody judges it: along a wrong order networks fit as well, so held-out rows would choose by chance.
    """
    sums = MomentSearch(engine="one place", **given).fit(CausalData(train, tuple(names)))
    return sums.adjacency_matrix_, sums.model_ in LINES
