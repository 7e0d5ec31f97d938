"""One pair's sums over a link, query by query, with few of them in memory; and how a busy party says that it lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from veracausa.crypto.agreement import tensor
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.moments import protocol
from veracausa.crypto.moments.engine import BlockEngine
from veracausa.crypto.moments.packing import PairPacking
from veracausa.crypto.moments.pairs import PairAnswerer, PairOwner
from veracausa.crypto.moments.protocol import MOMENT_TAKEN, MOMENT_TURN
from veracausa.crypto.ring import Ring, Small
from veracausa.wire.link import Link

AHEAD = 2
"""Queries that are under way before the first of them is taken."""

Rows = Iterator[tuple[int, Small]]
"""Number and rows of each query."""


class MomentTurns:
    """Who still waits for this party: each hears now and then that it is busy, and in the end that it is ready."""

    def __init__(self, link: Link, waiting: list[str]) -> None:
        self.link, self.waiting = link, waiting
        """A peer once for every exchange with it that is to come."""
        self.with_peer = ""
        """Whom this party has an exchange with: such a peer hears enough, and expects other messages."""
        self.every = min(5.0, link.timeout / 8)
        self._spoke = time.monotonic()

    def pulse(self) -> None:
        """Say that this party lives; called between pieces of work."""
        if time.monotonic() - self._spoke < self.every:
            return
        self._spoke = time.monotonic()
        for peer in {*self.waiting} - {self.with_peer}:
            self.link.send(peer, MOMENT_TURN, 0, ready=0)

    def announce(self, peer: str) -> None:
        """Say that this party is ready for the next exchange with a peer."""
        self.waiting.remove(peer)
        self.link.send(peer, MOMENT_TURN, 0, ready=1)

    def meet(self, peer: str) -> None:
        """Return when both are ready for their exchange. Until the next one this party is busy with that peer."""
        self.with_peer = peer
        self.announce(peer)
        self.wait(peer)

    def wait(self, peer: str) -> None:
        while not self.link.receive(peer, MOMENT_TURN, 0).meta["ready"]:
            self.pulse()


def own_pair(
    link: Link, peer: str, owner: PairOwner, packing: PairPacking, rows: Rows, done: Callable[[], None]
) -> Ring:
    """The owner's end: send all rows, open the answer. `done` is called after every query."""
    kind, answer_kind = protocol.moment_query(packing), protocol.moment_answer(packing)
    sent = 0
    for number, part in rows:
        if number >= AHEAD:
            link.receive(peer, MOMENT_TAKEN, number - AHEAD)
        link.send(peer, kind, number, {"rows": tensor(owner.query(number, part))})
        sent = number + 1
        done()
    for number in range(max(0, sent - AHEAD), sent):
        link.receive(peer, MOMENT_TAKEN, number)

    def answers() -> Iterator[Bytes]:
        for number in range(owner.answers):
            yield protocol.payload(link.receive(peer, answer_kind, number), "sums")
            done()

    return owner.opened(answers())


def answer_pair(
    link: Link,
    peer: str,
    answerer: PairAnswerer,
    packing: PairPacking,
    rows: Rows,
    engine: BlockEngine,
    done: Callable[[], None],
) -> Ring:
    """The answerer's end: multiply all that comes, then answer. `done` is called after every task."""
    kind, answer_kind = protocol.moment_query(packing), protocol.moment_answer(packing)

    def tasks() -> Iterator[object]:
        for number, part in rows:
            query = protocol.payload(link.receive(peer, kind, number), "rows")
            link.send(peer, MOMENT_TAKEN, number)
            yield from answerer.tasks(number, query, part)

    for result in engine.map(answerer.function, tasks()):
        answerer.add(result)
        done()
    for number, reply in enumerate(answerer.replies()):
        link.send(peer, answer_kind, number, {"sums": tensor(reply)})
        done()
    return answerer.share
