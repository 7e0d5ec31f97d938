"""The two ways to intersect sets of masked ids.

Mode `all`, a ring: every set goes round all parties, and only what everybody has comes back. Each party in turn
shuffles a set and puts it under its own exponent. The active party then holds all sets under all exponents, in orders
that nobody knows. It sees which points are in every set, and sorts them. Their positions go back the way the set came,
each party undoing its shuffle, until the owner knows which of its rows they are.

Mode `active`, a star: the active party and each passive one find what the two have in common. Passive parties share
nothing with each other. The agreed order is one of all the active party's rows, which it draws. A passive party learns
which of its rows are among them and where. The active party learns who has which of its rows, as it does anyway when
they train together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veracausa.alignment.exchange import (
    COMMON,
    MASKED,
    NOTHING,
    PLACES,
    POSITIONS,
    Outgoing,
    checked_points,
    checked_positions,
    common_count,
    exchange,
    masked,
    pieces,
    receive,
    steps_of,
)
from veracausa.alignment.masking import Points, Workers, shuffle
from veracausa.wire.link import Link

Rows = NDArray[np.int64]


class RingIntersection:
    """One party's way through it. `parties` has the active one first; a set is named after its owner."""

    def __init__(self, link: Link, parties: Sequence[str], counts: Mapping[str, int], workers: Workers) -> None:
        self.link, self.parties, self.counts, self.workers = link, parties, counts, workers
        self.place = parties.index(link.me)
        self.active = parties[0]
        self.shuffles: dict[str, Rows] = {}

    def align(self, uniform: Points) -> Rows:
        """Which of this party's ids everybody has, in the agreed order."""
        complete = self._go_round(uniform)
        if self.link.me == self.active:
            return self._go_back(*self._intersect(complete))
        count = common_count(receive(self.link, self.active, COMMON, 0), min(self.counts.values()), self.active)
        steps = steps_of([count])
        positions = exchange(self.link, POSITIONS, 0, _silence(steps), {self.active: count}, steps)[self.active]
        return self._go_back(cast(Rows, positions), count)

    def _go_round(self, uniform: Points) -> dict[str, list[bytes]]:
        """Mask one's own set and then everybody else's. The active party ends with all of them."""
        steps = steps_of(self.counts.values())
        held, sender = uniform, self.link.me
        for round_ in range(len(self.parties) - 1):
            mine = ({self._name(1): chunk} for chunk in self._masked(held, self._name(-round_), steps, sender))
            sender, coming = self._name(-1), self._name(-round_ - 1)
            held = cast(Points, exchange(self.link, MASKED, round_, mine, {sender: self.counts[coming]}, steps)[sender])
            checked_points(held, sender)
        last = len(self.parties) - 1
        chunks = self._masked(held, self._name(1), steps, sender)
        if self.link.me != self.active:
            exchange(self.link, MASKED, last, ({self.active: c} for c in chunks), {self.active: 0}, steps)
            return {}
        own: list[Points] = []
        bringing = {self.parties[i]: self.parties[(i + 1) % len(self.parties)] for i in range(1, len(self.parties))}
        counts = {peer: self.counts[owner] for peer, owner in bringing.items()}
        arrived = exchange(self.link, MASKED, last, self._keeping(chunks, own), counts, steps)
        complete = {owner: checked_points(cast(Points, arrived[peer]), peer) for peer, owner in bringing.items()}
        return {self._name(1): checked_points(np.concatenate(own), sender), **complete}

    def _masked(self, held: Points, owner: str, steps: int, sender: str) -> Iterator[Points]:
        self.shuffles[owner] = shuffle(len(held))
        return masked(self.workers, held[self.shuffles[owner]], steps, sender)

    def _keeping(self, chunks: Iterator[Points], kept: list[Points]) -> Outgoing:
        """The last set that the active party masks stays with it; the others only hear that it is at work."""
        for chunk in chunks:
            kept.append(chunk)
            yield dict.fromkeys(self.parties[1:], NOTHING)

    def _intersect(self, complete: Mapping[str, Sequence[bytes]]) -> tuple[Rows, int]:
        """Tell each party where the common ids stand in the set that it masked last; one's own is returned."""
        first, *rest = complete.values()
        common = sorted(set(first).intersection(*rest))
        for peer in self.parties[1:]:
            self.link.send(peer, COMMON, 0, count=len(common))
        positions = {}
        for owner, found in complete.items():
            place = {tag: at for at, tag in enumerate(found)}
            positions[owner] = np.array([place[tag] for tag in common], dtype=np.int64)
        steps = steps_of([len(common)])
        split = {
            peer: pieces(positions[self.parties[(i + 1) % len(self.parties)]], steps)
            for i, peer in enumerate(self.parties)
            if i
        }
        exchange(self.link, POSITIONS, 0, ({p: next(c) for p, c in split.items()} for _ in range(steps)), {}, steps)
        return positions[self._name(1)], len(common)

    def _go_back(self, positions: Rows, count: int) -> Rows:
        """Undo one's shuffle of every set in turn, and pass it on towards its owner; one's own is the last."""
        steps = steps_of([count])
        sender = self.active
        for turn in range(len(self.parties)):
            owner = self._name(turn + 1)
            checked_positions(POSITIONS, positions, self.counts[owner], sender)
            positions = self.shuffles[owner][positions]
            if owner == self.link.me:
                break
            back = ({self._name(-1): piece} for piece in pieces(positions, steps))
            sender = self._name(1)
            positions = cast(Rows, exchange(self.link, POSITIONS, turn + 1, back, {sender: count}, steps)[sender])
        return positions

    def _name(self, further: int) -> str:
        return self.parties[(self.place + further) % len(self.parties)]


def _silence(steps: int) -> Outgoing:
    return ({} for _ in range(steps))


def align_active(
    link: Link, passive: Sequence[str], counts: Mapping[str, int], uniform: Points, workers: Workers
) -> tuple[Rows, dict[str, int]]:
    """The active party's side: all its rows in the order it drew, and how many of them each passive party has."""
    order = shuffle(len(uniform))
    steps = steps_of(counts.values())
    mine = (dict.fromkeys(passive, chunk) for chunk in masked(workers, uniform[order], steps, link.me))
    sets = exchange(link, MASKED, 0, mine, {peer: counts[peer] for peer in passive}, steps)
    for peer in passive:
        checked_points(cast(Points, sets[peer]), peer)
    theirs: dict[str, list[Points]] = {peer: [] for peer in passive}
    work = _keeping({peer: masked(workers, cast(Points, sets[peer]), steps, peer) for peer in passive}, theirs, steps)
    returned = exchange(link, MASKED, 1, work, dict.fromkeys(passive, counts[link.me]), steps)
    found: dict[str, int] = {}
    for peer in passive:
        place = {tag: at for at, tag in enumerate(checked_points(cast(Points, returned[peer]), peer))}
        own = checked_points(np.concatenate(theirs[peer]), peer)
        both = np.array([(at, place[tag]) for at, tag in enumerate(own) if tag in place], dtype=np.int64).reshape(-1, 2)
        found[peer] = len(both)
        _tell(link, peer, both[both[:, 1].argsort()])
    return order, found


def align_passive(link: Link, active: str, counts: Mapping[str, int], uniform: Points, workers: Workers) -> Rows:
    """A passive party's side: its row for each of the active party's, in the agreed order; -1 where it has none."""
    order = shuffle(len(uniform))
    steps = steps_of(counts.values())
    mine = ({active: chunk} for chunk in masked(workers, uniform[order], steps, link.me))
    theirs = cast(Points, exchange(link, MASKED, 0, mine, {active: counts[active]}, steps)[active])
    checked_points(theirs, active)
    back = ({active: chunk} for chunk in masked(workers, theirs, steps, active))
    exchange(link, MASKED, 1, back, {active: 0}, steps)
    count = common_count(receive(link, active, COMMON, 0), min(counts[active], counts[link.me]), active)
    count_steps = steps_of([count])
    silence: Outgoing = ({} for _ in range(count_steps))
    both = cast(Rows, exchange(link, PLACES, 0, silence, {active: count}, count_steps)[active])
    checked_positions(PLACES, both[:, 0], counts[link.me], active)
    checked_positions(PLACES, both[:, 1], counts[active], active)
    rows = np.full(counts[active], -1, dtype=np.int64)
    rows[both[:, 1]] = order[both[:, 0]]
    return rows


def _keeping(work: Mapping[str, Iterator[Points]], kept: Mapping[str, list[Points]], steps: int) -> Outgoing:
    """Passive parties' sets stay with the active one once it has masked them; they hear that it is at work."""
    for _ in range(steps):
        for peer, chunks in work.items():
            kept[peer].append(next(chunks))
        yield dict.fromkeys(work, NOTHING)


def _tell(link: Link, peer: str, both: Rows) -> None:
    link.send(peer, COMMON, 0, count=len(both))
    steps = steps_of([len(both)])
    exchange(link, PLACES, 0, ({peer: piece} for piece in pieces(both, steps)), {}, steps)
