"""What encrypted sums over rows cost, in seconds of one core and in bytes, beside the plaintext twin.

Both parties' work counts. A case that takes minutes is timed on a share of its queries and replies, and scaled to all
of them: `share` says which part was timed. Its sums are not opened as a whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from benchmarks.rows import Row
from veracausa.arrays import Array
from veracausa.crypto.moments import MomentParty, MomentPlan, Moments, cut
from veracausa.crypto.moments.encoding import encoded_blocks
from veracausa.crypto.moments.packing import PACKET, QUERY_BYTES, REPLY_BYTES, PairPacking
from veracausa.crypto.randomness import SecureDraws, Toss
from veracausa.wire.link import Link
from veracausa.wire.threads import run_threads, thread_links

TWIN = "plaintext twin"
OWNER, ANSWERER = "one", "other"


@dataclass(frozen=True)
class MomentCase:
    """Two parties with so many features each."""

    features: int
    rows: int = 20_000
    queries: int = 0
    """Timed of all; 0: all, and the sums are opened."""

    @property
    def name(self) -> str:
        return f"{self.features} + {self.features} features, {self.rows} rows"

    def plan(self, encryption: str) -> MomentPlan:
        widths = {OWNER: self.features, ANSWERER: self.features}
        return MomentPlan(tuple(widths), widths, self.rows, OWNER, encryption)  # type: ignore[arg-type]


CASES = (MomentCase(64), MomentCase(512, queries=4))


def run(cases: Sequence[MomentCase] = CASES) -> list[Row]:
    """Seconds of one core of both parties together."""
    return [_row(case) for case in cases]


def _row(case: MomentCase) -> Row:
    rows = _features(case)
    twin, twin_seconds, _, twin_bytes = _whole(case.plan("none"), rows)
    if case.queries:
        seconds, parts, share = _scaled(case.plan("bfv"), rows, case.queries)
        packing = case.plan("bfv").packing(OWNER, ANSWERER)
        sent = packing.packet_count * 64 + _ciphertexts(packing) * QUERY_BYTES + packing.replies * REPLY_BYTES
        extra = {"share": share, **parts}
    else:
        opened, seconds, wall, sent = _whole(case.plan("bfv"), rows)
        if not np.array_equal(opened.integers, twin.integers):
            raise AssertionError("the encrypted sums are not those of the twin")
        extra = {"share": 1.0, "wall seconds": wall}
    return Row(case.name, seconds, TWIN, twin_seconds, {**extra, "MB": sent / 1e6, "its MB": twin_bytes / 1e6})


def _features(case: MomentCase) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {party: rng.normal(size=(case.rows, case.features)).clip(-8, 8) for party in (OWNER, ANSWERER)}


def _whole(plan: MomentPlan, rows: dict[str, Array]) -> tuple[Moments, float, float, int]:
    """What is opened, seconds of processors and of the clock, and the bytes that all parties sent."""
    found: list[Moments] = []

    def program(party: str) -> Callable[[Link], None]:
        def run(link: Link) -> None:
            opened = MomentParty(plan, party, cut(rows[party], plan.block_rows), SecureDraws()).run(link)
            found.extend([opened] if opened is not None else [])

        return run

    links = thread_links(plan.parties, timeout=600)
    wall, cpu = time.perf_counter(), time.process_time()
    run_threads({party: program(party) for party in plan.parties}, links)
    taken = time.process_time() - cpu, time.perf_counter() - wall
    return found[0], *taken, sum(link.ledger.bytes_sent for link in links.values())


def _scaled(plan: MomentPlan, rows: dict[str, Array], queries: int) -> tuple[float, dict[str, float], float]:
    """Seconds of all queries and replies by those of a few, what each part takes, and the share that was timed."""
    from veracausa.crypto.moments.bfv_pairs import BfvKeys, partial_sums

    packing = plan.packing(OWNER, ANSWERER)
    toss = Toss(os.urandom(32))
    owner, answerer = BfvKeys(toss, OWNER), BfvKeys(toss, ANSWERER)
    answerer.meet(OWNER, owner.public_key())
    owning, answering = owner.owner(ANSWERER, packing), answerer.answerer(OWNER, packing, SecureDraws())
    clock = time.process_time
    encrypting = multiplying = 0.0
    timed = 0
    for number, (theirs, own) in enumerate(islice(_packets(plan, packing, rows), queries)):
        start = clock()
        query = owning.query(number, theirs)
        encrypting += clock() - start
        start = clock()
        for task in answering.tasks(number, query, own):
            answering.add(partial_sums(task))
        multiplying += clock() - start
        timed += packing.ciphertexts(len(own))
    start = clock()
    next(answering.replies())
    replying = clock() - start  # opening a reply takes less than making one, and is counted as much
    whole, replies = _ciphertexts(packing), min(PACKET, packing.replies)
    parts = {
        "encrypting": encrypting * whole / timed,
        "multiplying": multiplying * whole / timed,
        "replying": 2 * replying * packing.replies / replies,
    }
    return sum(parts.values()), parts, timed / whole


def _packets(plan: MomentPlan, packing: PairPacking, rows: dict[str, Array]) -> Iterator[tuple[Array, Array]]:
    streams = [encoded_blocks(plan, party, cut(rows[party], plan.block_rows)) for party in (OWNER, ANSWERER)]
    blocks = list(zip(*streams, strict=True))
    for at, first, last in packing.packets():
        theirs, own = blocks[at]
        yield theirs[first:last], own[first:last]


def _ciphertexts(packing: PairPacking) -> int:
    return sum(packing.ciphertexts(last - first) for _, first, last in packing.packets())
