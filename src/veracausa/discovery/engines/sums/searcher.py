"""From opened sums to the graph, at the validator or at every party: the search, and its repetition on resamples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto.moments import Moments
from veracausa.discovery.engines.sums.features import in_units
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.methods.moments.expansion import NodeLayout
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.known import among, with_required
from veracausa.discovery.methods.moments.resampling import EdgeShares, drawn_sums, resampled_edges, row_weights
from veracausa.discovery.methods.moments.search import Known, search_sums
from veracausa.discovery.methods.moments.sums import SumTable, sum_table
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.seeding import derive


@dataclass(frozen=True)
class SumsGraph:
    """What a search found, over all columns of the plan. Those that take no part have no edges."""

    found: SumsFound
    shares: EdgeShares | None = None
    """None: there were no resamples."""

    def matrices(self) -> dict[str, Array]:
        """By the names of `protocol.MATRICES`; nan where there is nothing."""
        shape = self.found.adjacency.shape
        names = ("adjacency", "undirected", "strengths", "slopes", "bends", "margins")
        made: dict[str, Array] = {name: np.asarray(getattr(self.found, name), dtype=np.float64) for name in names}
        made["joined"] = np.zeros(shape)
        for i, j, value in self.found.joined:
            made["joined"][i, j] = made["joined"][j, i] = value
        none = np.full(shape, np.nan)
        made["confidence"] = none if self.shares is None else self.shares.directed
        made["skeleton_confidence"] = none if self.shares is None else self.shares.skeleton
        return made


def searched_graph(
    plan: SumsPlan,
    known: Known,
    nodes: Sequence[NodeLayout | None],
    releases: Sequence[Moments],
    time_is_up: Callable[[], bool] = lambda: False,
    progress: ProgressCallback = lambda share: None,
) -> SumsGraph:
    """The graph of the first release, and its confidence by the others or by draws from it."""
    kept = [at for at, node in enumerate(nodes) if node is not None]
    layouts = [node for node in nodes if node is not None]
    if len(kept) < 2:
        raise InputError("fewer than two columns can be summed up, so there is no graph; give columns that vary")
    inside = among(known, kept)
    rng = np.random.default_rng(derive(plan.seed, "discovery", "moments"))
    first = _table(plan, layouts, releases[0])
    found = search_sums(first, plan.settings, inside, rng, time_is_up)
    shares = None
    if plan.settings.bootstrap:
        tables = _resamples(plan, layouts, releases)
        count, seed = plan.settings.bootstrap, plan.seed
        shares = resampled_edges(tables, count, found, plan.settings, inside, seed, time_is_up, progress)
        shares = shares.spread_out(kept, plan.d)
    return SumsGraph(with_required(found.spread_out(kept, plan.d), known), shares)


def _table(plan: SumsPlan, layouts: Sequence[NodeLayout], moments: Moments, number: int = 0) -> SumTable:
    gram, noise = in_units(moments.gram, layouts), in_units(moments.noise, layouts)
    rows = plan.rows if not number else int(row_weights(plan.rows, plan.seed, number).sum())
    return sum_table(gram, layouts, rows, noise)


def _resamples(plan: SumsPlan, layouts: Sequence[NodeLayout], releases: Sequence[Moments]) -> Iterator[SumTable]:
    """Of rows, which were released one after the other; or drawn from the first release."""
    if plan.releases > 1:
        for number in range(1, plan.releases):
            yield _table(plan, layouts, releases[number], number)
        return
    gram, noise = in_units(releases[0].gram, layouts), in_units(releases[0].noise, layouts)
    for number in range(plan.settings.bootstrap):
        rng = np.random.default_rng(derive(plan.seed, "discovery", "sums drawn", number))
        yield sum_table(drawn_sums(gram, plan.rows, rng), layouts, plan.rows, noise)
