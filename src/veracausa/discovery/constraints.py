"""Edges that a graph must have or must not have, checked before anything is learned: what is wrong is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veracausa.arrays import Mask
from veracausa.discovery.base import as_edges
from veracausa.discovery.graphs import is_acyclic
from veracausa.errors import InputError


def edge_constraints(required: Any, forbidden: Any, names: Sequence[str]) -> tuple[Mask, Mask]:
    """Both as (d, d) booleans; an edge in both, and required edges in a circle, are refused by name."""
    none = np.zeros((len(names), len(names)), dtype=bool)
    must, never = (
        none if edges is None else edges
        for edges in (as_edges(required, names, "required"), as_edges(forbidden, names, "forbidden"))
    )
    for cause, effect in np.argwhere(must & never):
        raise InputError(
            f"edge {names[cause]} -> {names[effect]} is required and forbidden; remove it from one of the two"
        )
    if not is_acyclic(must):
        circle = " -> ".join(names[at] for at in _circle(must))
        raise InputError(f"required: {circle} is a cycle, which no causal graph can hold; remove one of these edges")
    return must, never


def _circle(edges: Mask) -> list[int]:
    """A way back to its own start, in a graph that has one."""
    left = edges.copy()
    while True:  # who has no effect any more lies on no cycle
        ends = np.flatnonzero(left.any(axis=0) & ~left.any(axis=1))
        if not len(ends):
            break
        left[:, ends] = False
    way = [int(np.flatnonzero(left.any(axis=1))[0])]
    while way.count(way[-1]) < 2:
        way.append(int(left[way[-1]].argmax()))
    return way[way.index(way[-1]) :]
