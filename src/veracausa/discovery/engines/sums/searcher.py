"""From opened sums to the graph, at the validator or at every party: the search, and its repetition on resamples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto.moments import Moments
from veracausa.discovery.engines.sums.features import in_units
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.methods.moments.expansion import NodeLayout
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.search import Known, search_sums
from veracausa.discovery.methods.moments.sums import sum_table
from veracausa.errors import InputError
from veracausa.seeding import derive


@dataclass(frozen=True)
class SumsGraph:
    """What a search found, over all columns of the plan. Those that take no part have no edges."""

    found: SumsFound
    confidence: Array | None = None
    skeleton_confidence: Array | None = None

    def matrices(self) -> dict[str, Array]:
        """By the names of `protocol.MATRICES`; nan where there is nothing."""
        none = np.full(self.found.adjacency.shape, np.nan)
        names = ("adjacency", "undirected", "strengths", "slopes", "bends", "margins")
        made: dict[str, Array] = {name: np.asarray(getattr(self.found, name), dtype=np.float64) for name in names}
        made["confidence"] = none if self.confidence is None else self.confidence
        made["skeleton_confidence"] = none if self.skeleton_confidence is None else self.skeleton_confidence
        return made


def searched_graph(
    plan: SumsPlan,
    known: Known,
    nodes: Sequence[NodeLayout | None],
    releases: Sequence[Moments],
    time_is_up: Callable[[], bool] = lambda: False,
) -> SumsGraph:
    """The graph of the first release, and its confidence by the others or by draws from it."""
    kept = [at for at, node in enumerate(nodes) if node is not None]
    layouts = [node for node in nodes if node is not None]
    if len(kept) < 2:
        raise InputError("fewer than two columns can be summed up, so there is no graph; give columns that vary")
    inside = Known(
        known.required[np.ix_(kept, kept)],
        known.forbidden[np.ix_(kept, kept)],
        None if known.tiers is None else [known.tiers[at] for at in kept],
    )
    rng = np.random.default_rng(derive(plan.seed, "discovery", "moments"))
    first = releases[0]
    gram, noise = in_units(first.gram, layouts), in_units(first.noise, layouts)
    found = search_sums(sum_table(gram, layouts, plan.rows, noise), plan.settings, inside, rng, time_is_up)
    return SumsGraph(_spread(found, kept, plan.d, known))


def _spread(found: SumsFound, kept: Sequence[int], d: int, known: Known) -> SumsFound:
    """The same with the columns that took no part put back."""
    if len(kept) == d:
        return found
    square = np.ix_(kept, kept)
    made: dict[str, Any] = {}
    for name in found.__dataclass_fields__:
        value = getattr(found, name)
        if isinstance(value, np.ndarray) and value.ndim == 2:
            made[name] = np.zeros((d, d), dtype=value.dtype)
            made[name][square] = value
        elif isinstance(value, np.ndarray) and len(value) == len(kept):
            made[name] = np.zeros(d, dtype=value.dtype)
            made[name][list(kept)] = value
        else:
            made[name] = value
    gone = sorted(set(range(d)) - set(kept))
    made["adjacency"] |= known.required
    made["order"] = (*(kept[at] for at in found.order), *gone)
    made["joined"] = tuple((kept[i], kept[j], value) for i, j, value in found.joined)
    return SumsFound(**made)
