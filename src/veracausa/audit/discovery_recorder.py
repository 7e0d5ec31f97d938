"""What a party sees of a discovery while its program runs: everything that it opens, sends or is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point
from veracausa.crypto.ring import Ring, Small
from veracausa.discovery.engines.shares.share_engine import FEATURE_BITS, ShareEngine, pooled
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.structure import Structure

if TYPE_CHECKING:
    from veracausa.discovery.engines.shares.party import AttributeParty
    from veracausa.discovery.engines.shares.plan import SearchPlan
    from veracausa.wire.link import Link


MOMENTS = 24
"""Epochs of which all features are kept."""
FIRST = 2
"""Epochs of which every step is kept."""


@dataclass
class RecordedStep:
    """One batch of the first epochs."""

    batch: int
    parts: Array
    steps: Array | None = None
    factors: Array | None = None


@dataclass
class Candidate:
    """One graph under which the rows kept apart were opened, and their features."""

    graph: Mask
    """(d, own)."""
    parts: list[Array] = field(default_factory=list)


class DiscoveryRecorder:
    """What a party sees of one search. Rows are numbered as they lie in the batches, one batch after the other.

    Parts have a leading axis of sources; where only their sum is opened it has length one.
    """

    def __init__(self, party: AttributeParty, search: SearchPlan) -> None:
        plan = party.plan
        self.plan, self.name, self.search = plan, party.name, search
        self.truth = np.concatenate(party.values[: party.steps])
        """(n, own): the party's own columns, to score the others' guesses; no view of another party holds them."""
        self.held_out = np.concatenate(party.values[party.steps :]) if plan.held_out else np.zeros((0, party.count))
        self.size = len(party.values[0])
        self.batches, self.epochs = party.steps, len(search.epochs)
        settled = search.settings.epochs if search.settings.refit_epochs else self.epochs * 3 // 4
        self.settled = min(settled, self.epochs - 1)
        self.moments = set(np.unique(np.linspace(0, self.epochs - 1, MOMENTS).round().astype(int)).tolist())
        count = len(plan.peers(party.name)) if self.apart else 1
        shape = (count, len(self.truth), party.count * plan.numbers)
        self.last, self.sum = np.zeros(shape), np.zeros(shape)
        self.history: list[NDArray[np.float32]] = []
        self.first: list[RecordedStep] = []
        self.first_into: Ring
        self.first_out: Ring
        self.first_look: tuple[int, Ring, Ring] | None = None
        """After how many batches the validator looked for the first time, and what it was sent (into, out)."""
        self.last_look: tuple[Ring, Ring]
        self.candidates: list[Candidate] = []
        self.order = np.ones((plan.d, party.count), dtype=bool)
        """(d, own): the edges that the search left, which every party is told."""
        self.factors: Array | None = None
        """(d, own): those of the last look."""
        self.total, self.looks = np.zeros((plan.d, party.count)), 0
        """All factors of the refit's second half, added up."""
        self.opened_batches = 0

    @property
    def apart(self) -> bool:
        """Whether each source's part is opened."""
        return bool(self.plan.settings.reveal_per_source) or len(self.plan.parties) == 2

    @property
    def mean(self) -> Array:
        """Of all openings since the order was settled."""
        return self.sum / max(1, self.epochs - self.settled)

    @property
    def strengths(self) -> Array | None:
        """(d, own): as they follow from the last factors."""
        return self._strengths(self.factors)

    @property
    def mean_strengths(self) -> Array | None:
        """The same from the mean factors of the refit's second half."""
        return self._strengths(self.total / self.looks if self.looks else None)

    def _strengths(self, factors: Array | None) -> Array | None:
        return None if factors is None else strengths_of(factors, self.search.settings, self.plan.every)

    def opened(self, batch: int, opened: Ring, graph: tuple[Mask, Mask] | None) -> None:
        parts = fixed_point.decode(opened, FEATURE_BITS) if self.apart else pooled(opened)[None]
        if batch >= self.batches:
            if batch == self.batches:
                self.candidates.append(Candidate(self.order if graph is None else graph[0].copy()))
            self.candidates[-1].parts.append(parts)
            return
        epoch, at = self.opened_batches // self.batches, slice(batch * self.size, (batch + 1) * self.size)
        self.opened_batches += 1
        self.last[:, at] = parts
        if epoch >= self.settled:
            self.sum[:, at] += parts
        if epoch < FIRST:
            self.first.append(RecordedStep(batch, parts))
        if self.opened_batches % self.batches == 0 and epoch in self.moments:
            self.history.append(self.last.astype(np.float32))

    def stepped(self, steps: Small) -> None:
        if self.opened_batches <= FIRST * self.batches and self.first:
            self.first[-1].steps = steps / 2.0**fixed_point.GRADIENT_BITS

    def sent(self, into: Ring, out: Ring) -> None:
        if self.first_look is None:
            self.first_look = (self.opened_batches, into.copy(), out.copy())
        self.last_look = (into, out)

    def settle(self, into: Mask) -> None:
        self.order = into.copy()
        self.told(into.astype(np.float64))

    def told(self, into: Array) -> None:
        if self.opened_batches <= FIRST * self.batches and self.first:
            self.first[-1].factors = into.copy()
        refit = self.search.settings.epochs * self.batches
        if self.opened_batches > refit:
            self.factors = into.copy()
            if 2 * self.opened_batches > refit + self.epochs * self.batches:
                self.total += into
                self.looks += 1


class WatchedHolder:
    """A holder whose party does not notice that somebody writes down what it sees."""

    def __init__(self, holder: ShareEngine, recorders: Sequence[DiscoveryRecorder]) -> None:
        self._holder, self._all = holder, recorders
        self._running: list[DiscoveryRecorder] = []
        """Of the searches that are not over, in the holder's order."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._holder, name)

    def share_first_weights(self, link: Link, allowed: Mask, searches: Sequence[int] = (0,)) -> None:
        self._holder.share_first_weights(link, allowed, searches)
        self._running = [self._all[search] for search in searches]
        for at, recorder in enumerate(self._running):
            recorder.first_into = self._holder.into.forward[at].copy()
            recorder.first_out = self._holder.out.forward[at].copy()

    def keep(self, at: Sequence[int]) -> None:
        self._running = [self._running[search] for search in at]
        self._holder.keep(at)

    def features(
        self, link: Link, batches: tuple[int, ...], graph: tuple[Mask, Mask] | None = None, at: int | None = None
    ) -> Array:
        opened = self._holder.opened(link, batches, graph, at)
        seeing = self._running if at is None else [self._running[at]]
        for number, (recorder, batch) in enumerate(zip(seeing, batches, strict=True)):
            recorder.opened(batch, opened[:, number], graph)
        return pooled(opened)

    def descend(self, batches: tuple[int, ...], steps: Small) -> None:
        for recorder, step in zip(self._running, steps, strict=True):
            recorder.stepped(step)
        self._holder.descend(batches, steps)

    def norms(self, link: Link, at: Sequence[int]) -> tuple[Ring, Ring]:
        return self._sent(at, *self._holder.norms(link, at))

    def weights(self, link: Link, at: Sequence[int]) -> tuple[Ring, Ring]:
        return self._sent(at, *self._holder.weights(link, at))

    def _sent(self, at: Sequence[int], into: Ring, out: Ring) -> tuple[Ring, Ring]:
        for search, *shares in zip(at, into, out, strict=True):
            self._running[search].sent(*shares)
        return into, out

    def shrink(self, into: Array, out: Array, at: Sequence[int]) -> None:
        for search, factors in zip(at, into, strict=True):
            self._running[search].told(factors)
        self._holder.shrink(into, out, at)

    def restrict(self, into: Mask, out: Mask, at: Sequence[int]) -> None:
        for search, left in zip(at, into, strict=True):
            self._running[search].settle(left)
        self._holder.restrict(into, out, at)


class DiscoveryRecording:
    """All parties' recorders of one discovery, by name; hand `watch` to the fit."""

    def __init__(self) -> None:
        self._seen: dict[str, list[DiscoveryRecorder]] = {}

    @property
    def searches(self) -> list[dict[str, DiscoveryRecorder]]:
        """Of each search what every party saw, in the plan's order, whichever thread came first."""
        plan = next(iter(self._seen.values()))[0].plan if self._seen else None
        if plan is None:
            return []
        return [{name: self._seen[name][search.number] for name in plan.parties} for search in plan.searches]

    @property
    def parties(self) -> dict[str, DiscoveryRecorder]:
        """Those of the first search."""
        return next(iter(self.searches), {})

    def watch(self, party: AttributeParty) -> None:
        recorders = [DiscoveryRecorder(party, search) for search in party.plan.searches]
        self._seen[party.name] = recorders
        party.holder = WatchedHolder(party.holder, recorders)  # type: ignore[assignment]


STRONGEST = 1000.0
HALVINGS = 60


def strengths_of(factors: Array, settings: Settings, every: int) -> Array | None:
    """B after the step, for which the structure step of the refit gives just this κ; 0 for an edge that has ended.

    In the refit only sparsity acts, and κ grows with B: halving finds it. None where factors do not tell.
    """
    if settings.sparsity != "group_lasso" or not settings.refit_epochs or not settings.sparsity_weight:
        return None
    structure = Structure(settings, np.ones((1, *factors.shape), dtype=bool))
    structure.searching = False
    low, high = np.zeros_like(factors), np.full_like(factors, STRONGEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        less = structure.factors(middle[None], every)[0] < factors
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray(np.where((factors > 0) & (factors < 1), low * factors, 0.0))
