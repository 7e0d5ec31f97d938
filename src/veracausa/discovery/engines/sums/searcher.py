"""From opened sums to the graph, at the validator or at every party: the search, and its repetition on resamples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto.moments import Moments
from veracausa.discovery.engines.sums.features import feature_units
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.engines.sums.protocol import PartyLayout
from veracausa.discovery.methods.moments.expansion import NodeLayout, PairLayout
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.known import among, with_required
from veracausa.discovery.methods.moments.resampling import EdgeShares, drawn_sums, resampled_edges, row_weights
from veracausa.discovery.methods.moments.search import Known, search_sums
from veracausa.discovery.methods.moments.sums import SumTable, sum_table
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.seeding import derive

SMALL = 1e-6


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


@dataclass(frozen=True)
class AllFeatures:
    """Where the features of all parties lie in the sums, and which columns take part."""

    kept: tuple[int, ...]
    """Positions of the columns that take part."""
    nodes: tuple[NodeLayout, ...]
    pairs: tuple[PairLayout, ...]
    places: tuple[int, ...]
    """Features of all columns, then those of all products, as positions in the sums."""
    units: Array
    """What 1 of each feature stands for, as the sums order them."""

    @classmethod
    def of(cls, plan: SumsPlan, layouts: Mapping[str, PartyLayout]) -> AllFeatures:
        kept: list[int] = []
        nodes: list[NodeLayout] = []
        pairs: list[PairLayout] = []
        first: list[int] = []
        last: list[int] = []
        units: list[Array] = []
        start = column = 0
        for party in plan.parties:
            layout = layouts[party]
            there = [at for at, node in enumerate(layout.nodes) if node is not None]
            own = [node for node in layout.nodes if node is not None]
            number = {at: len(kept) + place for place, at in enumerate(there)}
            width = sum(node.width for node in own)
            more = sum(pair.width for pair in layout.pairs)
            first += range(start, start + width)
            last += range(start + width, start + width + more)
            pairs += [PairLayout(number[pair.first], number[pair.second], pair.width) for pair in layout.pairs]
            units.append(feature_units(plan, own, layout.pairs))
            kept += [column + at for at in there]
            nodes += own
            start, column = start + width + more, column + len(layout.nodes)
        if len(kept) < 2:
            raise InputError("fewer than two columns can be summed up, so there is no graph; give columns that vary")
        return cls(tuple(kept), tuple(nodes), tuple(pairs), (*first, *last), np.concatenate(units))

    def table(self, sums: Array, noise: Array, rows: int) -> SumTable:
        """What a search reads, from sums in the order of the parties.

        Under noise it is told of fewer rows, with which chance alone would be as large.
        """
        square = np.ix_(self.places, self.places)
        scale = (self.units[:, None] * self.units)[square]
        gram = sums[square] * scale
        if not noise.any():
            return sum_table(gram, self.nodes, rows, None, self.pairs)
        deviations = noise[square] * scale
        share = effective_rows(sum_table(gram, self.nodes, rows, deviations, self.pairs), rows) / rows
        return sum_table(gram * share, self.nodes, max(2, round(rows * share)), deviations * share, self.pairs)


def effective_rows(table: SumTable, rows: int) -> float:
    """With so many rows and no noise, what is left of two columns would be as uncertain.

    Chance shrinks with what a column's neighbours leave of it, and noise does not. So noise weighs the more, the more
    of a column its neighbours explain: by its variance inflation for each of two columns.
    """
    assert table.noise is not None
    inverse = np.linalg.inv(table.correlations + SMALL * np.eye(table.d))
    inflation = float(np.diag(inverse).mean())
    size = table.blocks.shape[1]
    between = table.noise[::size, ::size]  # of the columns themselves, which curves are added to
    variance = float(np.square(between[between > 0]).mean())
    return rows / (1 + rows * variance * inflation**2)


def searched_graph(
    plan: SumsPlan,
    known: Known,
    layouts: Mapping[str, PartyLayout],
    releases: Sequence[Moments],
    time_is_up: Callable[[], bool] = lambda: False,
    progress: ProgressCallback = lambda share: None,
) -> SumsGraph:
    """The graph of the first release, and its confidence by the others or by draws from it."""
    every = AllFeatures.of(plan, layouts)
    inside = among(known, every.kept)
    rng = np.random.default_rng(derive(plan.seed, "discovery", "moments"))
    first = every.table(releases[0].gram, releases[0].noise, plan.rows)
    found = search_sums(first, plan.settings, inside, rng, time_is_up)
    shares = None
    if plan.settings.bootstrap:
        tables = _resamples(plan, every, releases)
        count, seed = plan.settings.bootstrap, plan.seed
        shares = resampled_edges(tables, count, found, plan.settings, inside, seed, time_is_up, progress)
        shares = shares.spread_out(every.kept, plan.d)
    return SumsGraph(with_required(found.spread_out(every.kept, plan.d), known), shares)


def _resamples(plan: SumsPlan, every: AllFeatures, releases: Sequence[Moments]) -> Iterator[SumTable]:
    """Of rows, which were released one after the other; or drawn from the first release."""
    for number, moments in enumerate(releases[1:], start=1):
        rows = int(row_weights(plan.rows, plan.seed, number).sum())
        yield every.table(moments.gram, moments.noise, rows)
    if len(releases) > 1:
        return
    gram, noise = releases[0].gram, releases[0].noise
    for number in range(plan.settings.bootstrap):
        rng = np.random.default_rng(derive(plan.seed, "discovery", "sums drawn", number))
        yield every.table(drawn_sums(gram, plan.rows, rng), noise, plan.rows)
