"""What a user knows of the graph beforehand, from the ways to write it down: edges, and tiers of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from veracausa.discovery.base import column_named, edge_constraints
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.search import Known
from veracausa.errors import InputError
from veracausa.registry import did_you_mean


def known_of(required: Any, forbidden: Any, tiers: Any, names: Sequence[str]) -> Known:
    """All of it as one; refused where it contradicts itself."""
    must, never = edge_constraints(required, forbidden, names)
    tier = tiers_of(tiers, names)
    known = Known(must, never, tier)
    for cause, effect in np.argwhere(must & ~known.may).tolist():
        raise InputError(
            f"edge {names[cause]} -> {names[effect]} is required, and {names[effect]!r} is of an earlier tier; correct "
            "one of the two"
        )
    before = known.before
    if before.diagonal().any():
        at = names[int(np.argmax(before.diagonal()))]
        raise InputError(f"required: edges and tiers together put {at!r} before itself; correct one of them")
    return known


def tiers_of(tiers: Any, names: Sequence[str]) -> list[float] | None:
    """(d,): each column's tier, nan where it has none; from lists of columns or a mapping of column to number."""
    if tiers is None or (isinstance(tiers, Mapping | list | tuple) and not tiers):
        return None
    if isinstance(tiers, Mapping):
        pairs = list(tiers.items())
    elif isinstance(tiers, list | tuple) and not any(isinstance(tier, str) for tier in tiers):
        pairs = [(column, number) for number, tier in enumerate(tiers) for column in tier]
    else:
        raise InputError("tiers: give lists of columns, the earliest first, or a mapping of column to number")
    found = dict.fromkeys(names, float("nan"))
    for column, number in pairs:
        name = column_named(column, names)
        if name not in found:
            raise InputError(f"tiers: there is no column {name!r}{did_you_mean(name, names)}")
        if not np.isnan(found[name]):
            raise InputError(f"tiers: {name!r} is named twice; a column has one tier")
        if isinstance(number, bool) or not isinstance(number, int | float | np.number) or not np.isfinite(number):
            raise InputError(f"tiers: {name!r} has the tier {number!r}; give a number")
        found[name] = float(number)
    return list(found.values())


def among(known: Known, columns: Sequence[int]) -> Known:
    """What is known of these columns, in this order: edges between two of them, and their tiers."""
    square = np.ix_(columns, columns)
    tiers = None if known.tiers is None else [known.tiers[at] for at in columns]
    return Known(known.required[square], known.forbidden[square], tiers)


def with_required(found: SumsFound, known: Known) -> SumsFound:
    """The graph with required edges of columns that took no part."""
    adjacency = found.adjacency | known.required
    if not is_acyclic(adjacency):
        raise InputError("required: edges through a column that takes no part close a cycle; leave these edges out")
    return replace(found, adjacency=adjacency)
