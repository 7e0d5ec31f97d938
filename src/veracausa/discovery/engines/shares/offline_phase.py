"""A ledger that counts apart what is sent ahead of the steps, and what a step waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from veracausa.crypto.agreement import AGREEMENT, agree, exchange_keys, tensor, toss_together
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.ring import Ring
from veracausa.crypto.triples import Needs, OneTimePool, Parts, spans
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
    def submit(self, this: GeneratorRound, received: Mapping[str, Parts]) -> None: ...
    def collect(self) -> tuple[dict[str, Parts], TripleBatch | None]: ...
    def close(self) -> None: ...


class InlineTripleGenerator(TripleGenerator):
    """A generator that works when its result is wanted."""

    def submit(self, this: GeneratorRound, received: Mapping[str, Parts]) -> None:
        self._submitted = this, received

    def collect(self) -> tuple[dict[str, Parts], TripleBatch | None]:
        return self.work(*self._submitted)

    def close(self) -> None:
        pass


class OfflinePhase:
    """One party's supply of triples."""

    def __init__(self, plan: Plan, name: str, order: TripleSpec) -> None:
        self.plan, self.name, self.peers, self.order = plan, name, plan.peers(name), order
        self.kind = protocol.triples(plan)
        self.used_keys: list[str] = []
        """Fingerprints of all keys that this run has seen, also before it was resumed."""
        self._first = 0
        self._turns = 0
        self._received: dict[str, Parts] = {}
        self._begun = False
        self.search = plan.searches[0]

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

    def begin(self, search: SearchPlan) -> None:
        """Turn to a search; the triples of the one before are used up."""
        self.search, self._begun = search, False

    def epoch(self, link: Link, epoch: int) -> TripleBatch:
        """The triples of the next epoch; the ones after it are begun."""
        if not self._begun:
            self._begun, self._first = True, epoch
            for ahead in (epoch - 3, epoch - 2, epoch - 1):
                self._submit(ahead)
                made = self._collect(link)
        else:
            made = self._collect(link)
        self._submit(epoch)
        return self._whole(made)

    def at_once(self, link: Link, needs: Needs) -> TripleBatch:
        """Triples that nobody could know of before, for the end of a search."""
        last = self.search.comparison
        self.generator.submit(GeneratorRound(ask=last, needs=needs), {})
        self._collect(link)
        self.generator.submit(GeneratorRound(answer=last), self._received)
        self.generator.collect()
        self.generator.submit(GeneratorRound(finish=last), self._received)
        return self._whole(self.generator.collect()[1])

    def _submit(self, number: int) -> None:
        at = {"finish": number + 1, "answer": number + 2, "ask": number + 3}
        due = {name: epoch for name, epoch in at.items() if self._first <= epoch <= self.search.last}
        if due:
            needs = self.plan.needs(self.search, due["ask"]) if "ask" in due else Needs()
            self.generator.submit(GeneratorRound(**due, needs=needs), self._received)

    def _collect(self, link: Link) -> TripleBatch | None:
        """Wait for the generator, then send and receive what the round gave."""
        sent, made = self.generator.collect()
        self._turns += 1
        for peer, parts in sent.items():
            link.send(peer, self.kind, self._step(self._turns), {name: tensor(part) for name, part in parts.items()})
        received = link.gather_each(dict.fromkeys(self.peers, self.kind), self._step(self._turns))
        self._received = {
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
    """For a party that shares each block with one other party."""

    def __init__(self, made: TripleBatch, peers: tuple[str, ...], sizes: Sequence[int]) -> None:
        """`sizes` are the rows of every batch."""
        target, source = [made.target[peer] for peer in peers], [made.source[peer] for peer in peers]
        needs = made.needs
        forward, backward = [], []
        # All batches at once: one by one, to put the peers' halves together would take longer than the step.
        if needs.forward:
            masks = np.concatenate([half.weight_masks for half in target], axis=1)
            kept = np.stack([half.features for half in target])
            half = np.concatenate([half.features for half in source], axis=1)
            rows = spans([sizes[batch] for batch in needs.forward])
            forward = [(masks[at], kept[:, rows[at]], half[rows[at]]) for at in range(len(rows))]
        if needs.backward:
            masks = np.stack([half.gradient_masks for half in target])
            kept = np.concatenate([half.increments for half in target], axis=1)
            half = np.concatenate([half.increments for half in source], axis=2)
            rows = spans([sizes[batch] for batch in needs.backward])
            backward = [(masks[:, rows[at]], kept[at], half[at]) for at in range(len(rows))]
        self._forward = OneTimePool("forward", needs.forward, forward)
        self._backward = OneTimePool("backward", needs.backward, backward)
        squares = list(zip(made.square_masks, made.squares, strict=True))
        self._squares = OneTimePool("norm", [0] * len(squares), squares)

    def forward(self, batch: int) -> tuple[Ring, Ring, Ring]:
        """Masks (foreign, own·h), the target's share (peers, n, own·h) and the source's (n, foreign·h) of products."""
        return self._forward.take(batch)

    def backward(self, batch: int) -> tuple[Ring, Ring, Ring]:
        """Masks (peers, n, own·h), the target's share (foreign, own·h) and the source's (own, foreign·h)."""
        return self._backward.take(batch)

    def square(self) -> tuple[Ring, Ring]:
        """Masks (blocks, h) and a share (blocks,) of the squared norms of all holders' masks together."""
        return self._squares.take(0)
