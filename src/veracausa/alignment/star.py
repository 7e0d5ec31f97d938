"""Mode `active`: the active party and each passive one find what the two have in common; passive ones share nothing.

The agreed order is one of all the active party's rows, drawn by it. A passive party learns which of its rows are among
them and where; the active party learns who has which of its rows, as it does anyway when they train together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veracausa.alignment.points import Points, shuffle
from veracausa.alignment.protocol import COMMON, MASKED, PLACES
from veracausa.alignment.streams import (
    NOTHING,
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
from veracausa.alignment.workers import Workers
from veracausa.wire.link import Link

Rows = NDArray[np.int64]


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
