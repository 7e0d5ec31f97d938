"""The graph that a search may start from: that of the moments, of the rows that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from veracausa.arrays import Array, Mask
from veracausa.data.causal import CausalData
from veracausa.discovery.methods.moments.estimator import MomentSearch


def moments_graph(train: Array, names: Sequence[str], **given: Any) -> Mask:
    """(d, d): the graph of training rows (n, d) alone, because held-out rows judge its order."""
    sums = MomentSearch(engine="one place", **given).fit(CausalData(train, tuple(names)))
    return sums.adjacency_matrix_
