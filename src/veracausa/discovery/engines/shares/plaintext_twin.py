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
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, SearchPlan, make_plan
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
    """What a party takes for its holder: the weights themselves, and everybody's rows."""

    def __init__(self, weights: SharedWeights, rows: list[Small], own: slice) -> None:
        self.weights, self.rows, self.at = weights, rows, (slice(None), own)

    def features(self, link: None, batch: int, graph: tuple[Mask, Mask] | None = None) -> Array:
        weights = self.weights.forward[self.at]
        if graph is not None:
            weights = weights * graph[0][..., None]
        opened = ring.matmul(self.rows[batch], weights.reshape(len(weights), -1))
        return fixed_point.decode(opened, FEATURE_BITS)

    def descend(self, batch: int, steps: Small) -> None:
        increment = ring.small_matmul(self.rows[batch].T, steps)
        self.weights.grow(ring.reduce(increment).reshape(self.weights.fresh[self.at].shape), self.at)


class _SimulatedLink:
    """What the validator takes for its link: it lets the parties learn until it is asked for norms again."""

    def __init__(self, plan: Plan, parties: Mapping[str, AttributeParty], allowed: Mask) -> None:
        self.plan, self.parties, self.allowed = plan, parties, allowed
        batches = [party.batches for party in parties.values()]
        self.rows = [np.concatenate(of_all, axis=1) for of_all in zip(*batches, strict=True)]
        self.weights: SharedWeights
        self._until_look = self._learn()
        self._stage = ""
        self._norms: Ring
        self._sent: dict[str, Array] = {}
        self._proposed: dict[str, dict[str, Mask]] = {}

    def _begin(self, search: SearchPlan) -> None:
        plan = self.plan
        first = np.zeros((plan.d, plan.d, plan.numbers), dtype=np.int64)
        for name, party in self.parties.items():
            masks = party.draws.masks("shares", search.number)
            first[plan.own(name), plan.foreign(name)] = first_weights(plan, name, self.allowed, masks)
        self.weights = SharedWeights(ring.reduce(first))
        self.weights.allowed = self.allowed & plan.between
        for name, party in self.parties.items():
            party.holder = _PlaintextShareEngine(self.weights, self.rows, plan.own(name))  # type: ignore[assignment]
            if search.number:
                party.draw(search.number)

    def declare(self, *kinds: Kind, peer: str) -> None:
        pass

    def _learn(self) -> Iterator[str]:
        for search in self.plan.searches:
            self._begin(search)
            for epoch in search.epochs():
                if epoch == search.refit:
                    yield "settle"
                yield from self._epoch(epoch)
            yield "end"

    def _epoch(self, epoch: int) -> Iterator[str]:
        rounding = {name: party.draws.generator("rounding", epoch) for name, party in self.parties.items()}
        for batch, update in self.plan.order(epoch):
            for name, party in self.parties.items():
                party._step(None, batch, rounding[name])  # type: ignore[arg-type]
            if update:
                yield "update"

    def receive(self, name: str, kind: Kind, step: int) -> Message:
        plan, party = self.plan, self.parties[name]
        if kind.name == "losses":
            losses, empty = party.scores(None, self._proposed[name])  # type: ignore[arg-type]
            return Message(name, VALIDATOR, kind.name, step, {"losses": tensor(losses)}, {"empty": empty})
        if name == plan.parties[0]:
            self._stage = next(self._until_look)
            norm = self.weights.norm
            self._norms = ring.total(ring.multiply(norm, norm), 2)
        own, others = plan.own(name), plan.foreign(name)
        loss, party.loss = party.loss, 0.0
        into, nothing = self._norms[others, own], np.zeros((party.count, len(others)), dtype=np.int64)
        sent = {"into": into, "out": nothing, "own": np.square(party.inner).sum(2)}
        tensors = {part: tensor(array) for part, array in sent.items()}
        return Message(name, VALIDATOR, kind.name, step, tensors, {"loss": loss})

    def gather_each(self, kinds: Mapping[str, Kind], step: int) -> dict[str, Message]:
        return {name: self.receive(name, kind, step) for name, kind in kinds.items()}

    def send(self, name: str, kind: Kind, step: int, tensors: Mapping[str, Any]) -> None:
        party = self.parties[name]
        if kind.name == "candidates":
            self._proposed[name] = {part: mask.numpy() for part, mask in tensors.items()}
        if kind.name != "factors" or self._stage == "end":
            return
        into = self._sent[name] = tensors["into"].numpy()
        if self._stage == "settle":
            party.inner_allowed = (into[party.inside] > 0)[..., None]
        party.inner *= into[party.inside][..., None]
        if name == self.plan.parties[-1]:
            factors = np.concatenate([self._sent[party] for party in self.plan.parties], axis=1)
            if self._stage == "settle":
                self.weights.restrict((factors > 0) & self.plan.between)
            else:
                self.weights.shrink(factors)
