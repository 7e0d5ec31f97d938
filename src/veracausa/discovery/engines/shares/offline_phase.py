"""A ledger that counts apart what is sent ahead of the steps, and what a step waits for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.randomness import TossedNonce
from veracausa.crypto.ring import Ring
from veracausa.crypto.triples import Needs, OneTimePool, Parts
from veracausa.discovery.engines.shares import protocol
from veracausa.discovery.engines.shares.plan import Plan, SearchPlan
from veracausa.discovery.engines.shares.protocol import OFFLINE, tensor
from veracausa.discovery.engines.shares.triples import (
    GeneratorRound,
    TripleBatch,
    TripleGenerator,
    TripleGeneratorProcess,
    TripleSpec,
)
from veracausa.errors import RunError, WireError
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
            link.declare(protocol.TOSS, protocol.TOSS_SHOWN, protocol.KEY, protocol.AGREED, peer=peer)
            link.declare(columns_kind, self.kind, peer=peer)
        step = self._step(0)
        seed = self._toss(link)
        own = self.generator.public_key(seed)
        for peer in self.peers:
            link.send(peer, protocol.KEY, step, {"key": tensor(own)})
        keys = {peer: link.receive(peer, protocol.KEY, step).tensors["key"].numpy() for peer in self.peers}
        self._agree(link, seed, {**keys, self.name: own})
        for peer, parts in self.generator.columns().items():
            link.send(peer, columns_kind, step, {name: tensor(part) for name, part in parts.items()})
        columns = {}
        for peer in self.peers:
            received = link.receive(peer, columns_kind, step).tensors
            columns[peer] = {name: part.numpy() for name, part in received.items()}
        self.generator.accept(keys, columns)

    def _toss(self, link: Link) -> bytes:
        """At every start anew: what was tossed before a restart goes with the keys that it was for."""
        step, own = self._step(0), TossedNonce(self.name, self.order.restart_index)
        for peer in self.peers:
            link.send(peer, protocol.TOSS, step, {"commitment": protocol.word(own.commitment())})
        committed = {peer: link.receive(peer, protocol.TOSS, step).tensors["commitment"] for peer in self.peers}
        for peer in self.peers:  # only now that nobody can choose by it
            link.send(peer, protocol.TOSS_SHOWN, step, {"nonce": protocol.word(own.nonce)})
        shown = {peer: link.receive(peer, protocol.TOSS_SHOWN, step).tensors["nonce"] for peer in self.peers}
        return own.joined(
            {peer: part.numpy().tobytes() for peer, part in committed.items()},
            {peer: part.numpy().tobytes() for peer, part in shown.items()},
        ).seed

    def _agree(self, link: Link, seed: bytes, keys: Mapping[str, Bytes]) -> None:
        prints = {party: hashlib.sha256(keys[party].tobytes()).hexdigest() for party in self.plan.parties}
        for party, fingerprint in prints.items():
            # A secret key is never written down, so after a resume every party has a new one.
            if keys[party].size and fingerprint in self.used_keys:
                raise WireError("key.key", f"is one that was used before (of {party!r}); a resumed run draws new ones")
        said = [self.plan.describe(), self.plan.order_seed, self.order.restart_index, seed.hex(), prints]
        words = json.dumps(said, sort_keys=True)
        whole = np.frombuffer(hashlib.sha256(words.encode()).digest(), dtype=np.uint8).copy()
        for peer in self.peers:
            link.send(peer, protocol.AGREED, self._step(0), {"fingerprint": tensor(whole)})
        for peer in self.peers:
            theirs = link.receive(peer, protocol.AGREED, self._step(0)).tensors["fingerprint"].numpy()
            if not np.array_equal(whole, theirs):
                raise WireError("agreed.fingerprint", f"{peer!r} has another plan, or other keys than this party")
        self.used_keys.extend(prints.values())

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
        self._received = {}
        for peer in self.peers:
            received = link.receive(peer, self.kind, self._step(self._turns)).tensors
            self._received[peer] = {name: part.numpy() for name, part in received.items()}
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

    def __init__(self, made: TripleBatch, peers: tuple[str, ...]) -> None:
        target, source = [made.target[peer] for peer in peers], [made.source[peer] for peer in peers]
        needs = made.needs
        forward = [
            (
                np.concatenate([half.weight_masks[at] for half in target]),
                np.stack([half.features[at] for half in target]),
                np.concatenate([half.features[at] for half in source], axis=1),
            )
            for at in range(len(needs.forward))
        ]
        backward = [
            (
                np.stack([half.gradient_masks[at] for half in target]),
                np.concatenate([half.increments[at] for half in target]),
                np.concatenate([half.increments[at] for half in source], axis=1),
            )
            for at in range(len(needs.backward))
        ]
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
