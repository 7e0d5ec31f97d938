"""What it costs to cross between two parties, beside a plain copy of the same bytes in memory."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from veracausa.bench.rows import Row, alternate, median
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, TensorSpec
from veracausa.wire.processes import ProcessLink, Wires, make_wires
from veracausa.wire.threads import share_one_heap, thread_links

FLOATS = Kind("floats", {"x": TensorSpec(torch.float32, (None,))})
MORE = Kind("more", meta={"echo": int, "count": int})
DONE = Kind("done")

SMALL, LARGE = 256 << 10, 16 << 20
TRIPS, LOADS = 200, 12
"""Messages in one measurement, so that one is long enough for the clock."""


def run(repeats: int) -> list[Row]:
    """For each link: the round trip of 256 KiB and the throughput of 16 MiB one way plus an acknowledgement."""
    share_one_heap()
    rows = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # else the copy that we compare with waits for a pool that finds no free core
    try:
        for name, connect in (("threads", _threads), ("processes", _processes)):
            with connect() as link:
                rows += [_round_trip(name, link, repeats), _throughput(name, link, repeats)]
    finally:
        torch.set_num_threads(before)
    return rows


def _round_trip(name: str, link: Link, repeats: int) -> Row:
    there = torch.rand(SMALL // 4)

    def cross(step: int) -> None:
        link.send("b", FLOATS, step, {"x": there})
        link.receive("b", FLOATS, step)

    sides = _Sides(link, 1, TRIPS, cross, lambda: (there.clone(), there.clone()))
    return sides.row(f"{name} round trip 256 KiB", "two copies in memory", 2 * SMALL, repeats)


def _throughput(name: str, link: Link, repeats: int) -> Row:
    load = torch.rand(LARGE // 4)

    def cross(step: int) -> None:
        link.send("b", FLOATS, step, {"x": load})
        link.receive("b", DONE, step)

    return _Sides(link, 0, LOADS, cross, load.clone).row(f"{name} 16 MiB", "a copy in memory", LARGE, repeats)


@dataclass(frozen=True)
class _Sides:
    """One message across the link, `count` times, and as often its copy in memory."""

    link: Link
    echo: int
    count: int
    cross: Callable[[int], object]
    copy: Callable[[], object]

    def row(self, case: str, against: str, nbytes: int, repeats: int) -> Row:
        every: list[float] = []

        def crossing() -> float:
            self.link.send("b", MORE, 0, echo=self.echo, count=self.count)
            seconds = [_timed(partial(self.cross, step)) for step in range(self.count)]
            self.link.receive("b", DONE, 0)
            every.extend(seconds)
            return median(seconds)

        def copying() -> float:
            return median([_timed(self.copy) for _ in range(self.count)])

        seconds = alternate({"link": crossing, "copy": copying}, repeats)
        ours = median(seconds["link"])
        warm = sorted(every[self.count :])
        extra = {
            "p50_ms": median(warm) * 1e3,
            "p99_ms": warm[int(0.99 * len(warm))] * 1e3,
            "mib_per_second": nbytes / 2**20 / ours,
        }
        return Row(case, ours, against, median(seconds["copy"]), extra)


def _answer(link: Link) -> None:
    """The other side: echo or acknowledge as often as asked, until asked for nothing."""
    link.declare(FLOATS, MORE, DONE)
    while count := (asked := link.receive("a", MORE, 0).meta)["count"]:
        for step in range(int(count)):
            message = link.receive("a", FLOATS, step)
            if asked["echo"]:
                link.send("a", FLOATS, step, message.tensors)
            else:
                link.send("a", DONE, step)
        link.send("a", DONE, 0)
    link.close()


@contextmanager
def _threads() -> Iterator[Link]:
    links = thread_links("ab")
    other = threading.Thread(target=_answer, args=(links["b"],), daemon=True)
    with _asking(links["a"], other.start, other.join) as link:
        yield link


@contextmanager
def _processes() -> Iterator[Link]:
    wires = make_wires("ab")
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=_answer_alone, args=(wires["b"],), daemon=True)

    def start() -> None:
        other.start()
        wires["b"].close()

    with _asking(ProcessLink(wires["a"]), start, other.join) as link:
        yield link


@contextmanager
def _asking(link: Link, start: Callable[[], None], join: Callable[[], None]) -> Iterator[Link]:
    link.declare(FLOATS, MORE, DONE)
    start()
    yield link
    link.send("b", MORE, 0, echo=0, count=0)
    join()


def _answer_alone(wires: Wires) -> None:
    share_one_heap()
    _answer(ProcessLink(wires))


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
