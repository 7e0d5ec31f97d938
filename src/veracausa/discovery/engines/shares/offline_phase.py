"""A ledger that counts apart what is sent ahead of the steps, and what a step waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from veracausa.crypto.agreement import AGREEMENT, agree, exchange_keys, tensor, toss_together
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.ring import Ring
from veracausa.crypto.triples import Needs, OneTimePool, Parts
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.plan import Plan, SearchPlan
from veracausa.discovery.engines.shares.protocol import OFFLINE
from veracausa.discovery.engines.shares.triples import (
    GeneratorRound,
    TripleBatch,
    TripleGenerator,
    TripleGeneratorProcess,
    TripleSpec,
)
from veracausa.errors import RunError
from veracausa.wire.ledger import Ledger, read_ledger
from veracausa.wire.link import Link
from veracausa.wire.message import Message


class PhaseLedger(Ledger):
    """Messages and bytes of one party; those of offline kinds also on their own."""

    offline_messages = 0
    offline_bytes = 0

    def record(self, message: Message, nbytes: int) -> None:
        super().record(message, nbytes)
        self._count(message.kind, nbytes)

    def resume(self, messages: int, bytes_sent: int) -> None:
        super().resume(messages, bytes_sent)
        self.offline_messages = self.offline_bytes = 0
        if self.path is not None and self.path.exists():
            for line in read_ledger(self.path):
                self._count(line["kind"], line["bytes"])

    def _count(self, kind: str, nbytes: int) -> None:
        if kind in OFFLINE:
            self.offline_messages += 1
            self.offline_bytes += nbytes

    def totals(self) -> dict[str, int]:
        return {
            "bytes": self.bytes_sent,
            "messages": self.messages,
            "offline_bytes": self.offline_bytes,
            "offline_messages": self.offline_messages,
        }


class Works(Protocol):
    def public_key(self, seed: bytes) -> Bytes: ...
    def columns(self) -> dict[str, Parts]: ...
    def accept(self, keys: Mapping[str, Bytes], columns: Mapping[str, Parts]) -> None: ...
    def submit(self, search: int, this: GeneratorRound, received: Mapping[str, Parts]) -> None: ...
    def collect(self, search: int) -> tuple[dict[str, Parts], TripleBatch | None]: ...
    def close(self) -> None: ...


class InlineTripleGenerator(TripleGenerator):
    """A generator that works when its result is wanted."""

    def __init__(self, order: TripleSpec) -> None:
        super().__init__(order)
        self._submitted: dict[int, tuple[GeneratorRound, Mapping[str, Parts]]] = {}
        """By search."""

    def submit(self, search: int, this: GeneratorRound, received: Mapping[str, Parts]) -> None:
        self._submitted[search] = this, received

    def collect(self, search: int) -> tuple[dict[str, Parts], TripleBatch | None]:
        return self.work(*self._submitted.pop(search))

    def close(self) -> None:
        pass


@dataclass
class TriplesAhead:
    """How far the triples of one search are."""

    search: SearchPlan
    first: int
    """Its first epoch in this start."""
    received: dict[str, Parts] = field(default_factory=dict)
    """What peers sent in the last round."""


class OfflinePhase:
    """One party's supply of triples."""

    def __init__(self, plan: Plan, name: str, order: TripleSpec) -> None:
        self.plan, self.name, self.peers, self.order = plan, name, plan.peers(name), order
        self.kind = protocol.triples(plan)
        self.used_keys: list[str] = []
        """Fingerprints of all keys that this run has seen, also before it was resumed."""
        self._turns = 0
        self._ahead: dict[int, TriplesAhead] = {}
        """By search."""

    def __enter__(self) -> OfflinePhase:
        made: Callable[[TripleSpec], Works] = (
            TripleGeneratorProcess if self.plan.precompute == "process" else InlineTripleGenerator
        )
        self.generator = made(self.order)
        return self

    def __exit__(self, *error: object) -> None:
        self.generator.close()

    def set_up(self, link: Link) -> None:
        """Toss for what no party may choose, exchange keys, agree that all have the same ones and the same plan, then
        exchange encrypted columns."""
        columns_kind = protocol.columns(self.plan)
        for peer in self.peers:
            link.declare(*AGREEMENT, peer=peer)
            link.declare(columns_kind, self.kind, peer=peer)
        step = self._step(0)
        # At every start anew: what was tossed before a restart goes with the keys that it was for.
        seed = toss_together(link, self.peers, step, self.order.restart_index).seed
        own = self.generator.public_key(seed)
        keys = exchange_keys(link, self.peers, step, own)
        said = [self.plan.describe(), self.plan.order_seed, self.order.restart_index, seed.hex()]
        every = {party: own if party == self.name else keys[party] for party in self.plan.parties}
        self.used_keys.extend(agree(link, self.peers, step, said, every, self.used_keys))
        for peer, parts in self.generator.columns().items():
            link.send(peer, columns_kind, step, {name: tensor(part) for name, part in parts.items()})
        columns = {}
        for peer in self.peers:
            received = link.receive(peer, columns_kind, step).tensors
            columns[peer] = {name: part.numpy() for name, part in received.items()}
        self.generator.accept(keys, columns)

    def epoch(self, link: Link, search: SearchPlan, epoch: int) -> TripleBatch:
        """The triples of a search's next epoch; the ones after it are begun."""
        ahead = self._ahead.get(search.number)
        if ahead is None:
            ahead = self._ahead[search.number] = TriplesAhead(search, epoch)
            for before in (epoch - 3, epoch - 2, epoch - 1):
                self._submit(ahead, before)
                made = self._collect(link, ahead)
        else:
            made = self._collect(link, ahead)
        self._submit(ahead, epoch)
        return self._whole(made)

    def at_once(self, link: Link, search: SearchPlan, needs: Needs) -> TripleBatch:
        """Triples that nobody could know of before, for the end of a search."""
        ahead, last = self._ahead[search.number], search.comparison
        self.generator.submit(search.number, GeneratorRound(ask=last, needs=needs), {})
        self._collect(link, ahead)
        self.generator.submit(search.number, GeneratorRound(answer=last), ahead.received)
        self.generator.collect(search.number)
        self.generator.submit(search.number, GeneratorRound(finish=last), ahead.received)
        return self._whole(self.generator.collect(search.number)[1])

    def _submit(self, ahead: TriplesAhead, number: int) -> None:
        search = ahead.search
        at = {"finish": number + 1, "answer": number + 2, "ask": number + 3}
        due = {name: epoch for name, epoch in at.items() if ahead.first <= epoch <= search.last}
        if due:
            needs = self.plan.needs(search, due["ask"]) if "ask" in due else Needs()
            self.generator.submit(search.number, GeneratorRound(**due, needs=needs), ahead.received)

    def _collect(self, link: Link, ahead: TriplesAhead) -> TripleBatch | None:
        """Wait for the generator, then send and receive what the round gave."""
        sent, made = self.generator.collect(ahead.search.number)
        self._turns += 1
        for peer, parts in sent.items():
            link.send(peer, self.kind, self._step(self._turns), {name: tensor(part) for name, part in parts.items()})
        received = link.gather_each(dict.fromkeys(self.peers, self.kind), self._step(self._turns))
        ahead.received = {
            peer: {name: part.numpy() for name, part in message.tensors.items()} for peer, message in received.items()
        }
        return made

    @staticmethod
    def _whole(made: TripleBatch | None) -> TripleBatch:
        if made is None:
            raise RunError("no triples were made for this epoch")
        return made

    def _step(self, number: int) -> int:
        return protocol.counter(self.order.restart_index, number)


class TripleStore:
    """For a party that shares each block with one other party: the triples of searches side by side, use by use."""

    def __init__(
        self,
        made: Mapping[int, TripleBatch],
        peers: tuple[str, ...],
        sizes: Sequence[int],
        orders: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Of each search by its place; `sizes` are the rows of every batch, and `orders` say in which order each search
        uses its batches."""
        needs, forward, backward = next(iter(made.values())).needs, [], []
        # All batches at once: one by one, to put them together would take longer than the step.
        for one in made.values():
            target, source = [one.target[peer] for peer in peers], [one.source[peer] for peer in peers]
            if needs.forward:
                masks = np.concatenate([half.weight_masks for half in target], axis=1)
                kept = np.stack([half.features for half in target])
                forward.append((masks, kept, np.concatenate([half.features for half in source], axis=1)))
            if needs.backward:
                masks = np.stack([half.gradient_masks for half in target])
                kept = np.concatenate([half.increments for half in target], axis=1)
                backward.append((masks, kept, np.concatenate([half.increments for half in source], axis=2)))
        places = orders or [range(len(needs.forward))]
        batches = list(zip(*(orders or [needs.forward]), strict=True))
        of_forward, of_backward = ([sizes[batch] for batch in asked] for asked in (needs.forward, needs.backward))
        opened = _by_use(forward, places, (None, of_forward, of_forward), (0, 1, 0))
        grown = _by_use(backward, places, (of_backward, None, None), (1, 0, 0))
        self._forward = OneTimePool("forward", batches if forward else (), opened)
        self._backward = OneTimePool("backward", batches if backward else (), grown)
        self._squares = {
            at: OneTimePool("norm", [0] * len(one.squares), list(zip(one.square_masks, one.squares, strict=True)))
            for at, one in made.items()
        }

    def forward(self, batches: tuple[int, ...]) -> tuple[Ring, Ring, Ring]:
        """Masks (S, foreign, own·h), the target's share (peers, S, n, own·h) and the source's (S, n, foreign·h) of
        products, for a batch of each of S searches."""
        return self._forward.take(batches)

    def backward(self, batches: tuple[int, ...]) -> tuple[Ring, Ring, Ring]:
        """Masks (peers, S, n, own·h), the target's share (S, foreign, own·h) and the source's (S, own, foreign·h)."""
        return self._backward.take(batches)

    def square(self, searches: Sequence[int]) -> tuple[Ring, Ring]:
        """Masks (S, blocks, h) and a share (S, blocks) of the squared norms of all holders' masks together."""
        masks, squares = zip(*(self._squares[at].take(0) for at in searches), strict=True)
        return np.stack(masks), np.stack(squares)


Triple = tuple[Ring, Ring, Ring]


def _by_use(
    searches: Sequence[Triple],
    places: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int] | None],
    axes: Sequence[int],
) -> list[Triple]:
    """What each search has for its uses, use by use beside each other.

    `rows` are those of each batch, for arrays that have them one after the other along the axis of the batches.
    """
    if not searches:
        return []
    each = (
        _beside([triple[at] for triple in searches], places, of_batch, axis)
        for at, (of_batch, axis) in enumerate(zip(rows, axes, strict=True))
    )
    return list(zip(*each, strict=True))


def _beside(
    searches: Sequence[Ring], places: Sequence[Sequence[int]], rows: Sequence[int] | None, axis: int
) -> list[Ring]:
    if rows is not None and len(set(rows)) > 1:  # held-out rows, of one search
        (only,) = searches
        parts = np.split(only, np.cumsum(rows)[:-1], axis)
        return [np.expand_dims(part, axis) for part in parts]
    if rows is not None:
        searches = [
            np.reshape(one, (*one.shape[:axis], len(rows), rows[0], *one.shape[axis + 1 :])) for one in searches
        ]
    laid = [np.take(one, order, axis) for one, order in zip(searches, places, strict=True)]
    return list(np.moveaxis(np.stack(laid, axis + 1), axis, 0))
