"""The same federation in one place, without shares and messages: bit for bit the same result, several times sooner.

Nothing that is opened depends on masks. So the parties' own code, given the weights themselves in place of shares,
learns the very integers that any federation learns with the same seed. For measuring, and for testing the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point, ring
from veracausa.crypto.ring import Ring, Small
from veracausa.crypto.shares import SharedWeights
from veracausa.discovery.engines.shares.party import AttributeParty
from veracausa.discovery.engines.shares.plan import VALIDATOR, ParallelSearches, Plan, make_plan
from veracausa.discovery.engines.shares.protocol import tensor
from veracausa.discovery.engines.shares.share_engine import FEATURE_BITS, first_weights
from veracausa.discovery.engines.shares.validator import Validator
from veracausa.discovery.graphs import constraints
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError
from veracausa.wire.message import Kind, Message


def discover_plaintext(
    columns: Mapping[str, Array],
    names: Sequence[str],
    settings: Settings,
    *,
    binary: Mask | None = None,
    required: Mask | None = None,
    forbidden: Mask | None = None,
    train_rows: int | None = None,
    seed: int = 0,
    local_steps: int = 1,
) -> DiscoveryResult:
    """What `run_federation` finds with the same seed; nothing is sent."""
    if settings.row_noise is not None:
        raise InputError("row_noise: only answers that are sent have noise; leave it out, or fit with parties")
    plan = make_plan(columns, names, settings, train_rows, seed, local_steps=local_steps)
    must, never = constraints(plan.d, required, forbidden)
    allowed = ~np.eye(plan.d, dtype=bool) & ~never
    two_valued = np.zeros(plan.d, dtype=bool) if binary is None else np.asarray(binary, dtype=bool)
    parties = {
        name: AttributeParty(plan, name, values, two_valued[plan.own(name)], allowed, seed)
        for name, values in columns.items()
    }
    validator = Validator(plan, allowed, must)
    validator.run(_SimulatedLink(plan, parties, allowed))  # type: ignore[arg-type]
    assert validator.found is not None
    fit = DiscoveryResult.of(plan.names, validator.found)
    fit.figures = np.concatenate([party.figures[fit.search] for party in parties.values()])
    return fit


class _PlaintextShareEngine:
    """What a party takes for its holder: the weights themselves of all searches, and everybody's rows."""

    def __init__(self, weights: Sequence[SharedWeights], rows: list[Small], own: slice) -> None:
        self.weights, self.rows, self.at = list(weights), rows, (slice(None), own)

    def features(
        self, link: None, batches: tuple[int, ...], graph: tuple[Mask, Mask] | None = None, at: int | None = None
    ) -> Array:
        chosen = self.weights if at is None else [self.weights[at]]
        opened = [self._opened(*each, graph) for each in zip(chosen, batches, strict=True)]
        return fixed_point.decode(np.stack(opened), FEATURE_BITS)

    def _opened(self, search: SharedWeights, batch: int, graph: tuple[Mask, Mask] | None) -> Ring:
        weights = search.forward[self.at]
        if graph is not None:
            weights = weights * graph[0][..., None]
        return ring.matmul(self.rows[batch], weights.reshape(len(weights), -1))

    def descend(self, batches: tuple[int, ...], steps: Small) -> None:
        for search, batch, step in zip(self.weights, batches, steps, strict=True):
            increment = ring.small_matmul(self.rows[batch].T, step)
            search.grow(ring.reduce(increment).reshape(search.fresh[self.at].shape), self.at)

    def keep(self, at: Sequence[int]) -> None:
        self.weights = [self.weights[search] for search in at]


class _SimulatedLink:
    """What the validator takes for its link: it lets the parties learn until it is asked for norms again."""

    def __init__(self, plan: Plan, parties: Mapping[str, AttributeParty], allowed: Mask) -> None:
        self.plan, self.parties, self.allowed = plan, parties, allowed
        batches = [party.batches for party in parties.values()]
        self.rows = [np.concatenate(of_all, axis=1) for of_all in zip(*batches, strict=True)]
        self.weights: list[SharedWeights] = []
        """Of the searches that are not over."""
        self._until_look = self._learn()
        self._stage = ""
        self._at: Sequence[int] = ()
        """The searches that are looked at."""
        self._norms: Ring
        self._sent: dict[str, Array] = {}
        self._proposed: dict[str, dict[str, Mask]] = {}

    def _begin(self, group: ParallelSearches) -> None:
        plan, self.weights = self.plan, []
        for search in group.searches:
            first = np.zeros((plan.d, plan.d, plan.numbers), dtype=np.int64)
            for name, party in self.parties.items():
                masks = party.draws.masks("shares", search.number)
                first[plan.own(name), plan.foreign(name)] = first_weights(plan, name, self.allowed, masks)
            weights = SharedWeights(ring.reduce(first))
            weights.allowed = self.allowed & plan.between
            self.weights.append(weights)
        for name, party in self.parties.items():
            party.draw(group)
            party.holder = _PlaintextShareEngine(self.weights, self.rows, plan.own(name))  # type: ignore[assignment]

    def declare(self, *kinds: Kind, peer: str) -> None:
        pass

    def _learn(self) -> Iterator[tuple[str, Sequence[int]]]:
        """What the validator is asked about next, and of which of the searches that are not over."""
        parties = list(self.parties.values())
        for group in self.plan.groups:
            self._begin(group)
            for done in range(group.first, group.last + 1):
                searches = group.left(done)
                for search in group.ending(done):
                    for party in parties:
                        party.ending = searches.index(search)
                    yield "end", [searches.index(search)]
                running = group.running(done)
                self.weights = [self.weights[searches.index(search)] for search in running]
                for party in parties:
                    party.keep(running)
                if running:
                    epochs = [group.epoch(search, done) for search in running]
                    settling = [at for at, search in enumerate(running) if epochs[at] == search.refit]
                    if settling:
                        yield "settle", settling
                    yield from self._epoch(epochs)

    def _epoch(self, epochs: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
        steps = list(zip(*(self.plan.order(epoch) for epoch in epochs), strict=True))
        rounding = {}
        for name, party in self.parties.items():
            party.pace(epochs)
            rounding[name] = party.rounding(epochs, len(steps))
        for number, step in enumerate(steps):
            for name, party in self.parties.items():
                party.step(None, tuple(batch for batch, _ in step), rounding[name][number])  # type: ignore[arg-type]
            if step[0][1]:
                yield "update", range(len(epochs))

    def receive(self, name: str, kind: Kind, step: int) -> Message:
        plan, party = self.plan, self.parties[name]
        if kind.name == "losses":
            losses, empty = party.scores(None, self._proposed[name])  # type: ignore[arg-type]
            return Message(name, VALIDATOR, kind.name, step, {"losses": tensor(losses)}, {"empty": empty})
        if name == plan.parties[0]:
            self._stage, self._at = next(self._until_look)
            norms = np.stack([self.weights[at].norm for at in self._at])
            self._norms = ring.total(ring.multiply(norms, norms), 3)
        own, others, at = plan.own(name), plan.foreign(name), list(self._at)
        into, nothing = self._norms[:, others, own], np.zeros((len(at), party.count, len(others)), dtype=np.int64)
        sent = {"into": into, "out": nothing, "own": np.square(party.inner[at]).sum(3), "losses": party.loss[at]}
        party.loss[at] = 0.0
        return Message(name, VALIDATOR, kind.name, step, {part: tensor(array) for part, array in sent.items()})

    def gather_each(self, kinds: Mapping[str, Kind], step: int) -> dict[str, Message]:
        return {name: self.receive(name, kind, step) for name, kind in kinds.items()}

    def send(self, name: str, kind: Kind, step: int, tensors: Mapping[str, Any]) -> None:
        party = self.parties[name]
        if kind.name == "candidates":
            self._proposed[name] = {part: mask.numpy() for part, mask in tensors.items()}
        if kind.name != "factors" or self._stage == "end":
            return
        at = list(self._at)
        into = self._sent[name] = tensors["into"].numpy()
        if self._stage == "settle":
            party.inner_allowed[at] = (into[:, *party.inside] > 0)[..., None]
        party.inner[at] *= into[:, *party.inside][..., None]
        if name == self.plan.parties[-1]:
            factors = np.concatenate([self._sent[party] for party in self.plan.parties], axis=2)
            for search, factor in zip(at, factors, strict=True):
                if self._stage == "settle":
                    self.weights[search].restrict((factor > 0) & self.plan.between)
                else:
                    self.weights[search].shrink(factor)
