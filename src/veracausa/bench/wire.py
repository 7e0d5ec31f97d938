"""What it costs to cross between two parties, beside a plain copy of the same bytes in memory."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch

from veracausa.bench.rows import Row, alternate, median
from veracausa.bench.wire_sides import DONE, FLOATS, KINDS, MORE, answer
from veracausa.bench.wire_stations import LARGE, SMALL, timed
from veracausa.errors import InputError
from veracausa.wire.link import Link
from veracausa.wire.processes import ProcessLink, Wires, make_wires
from veracausa.wire.threads import share_one_heap, thread_links

TRIPS, LOADS = 200, 12
"""Messages in one measurement, so that one is long enough for the clock."""


LINKS = ("threads", "processes", "tcp", "grpc")
"""Inside one machine, and between organisations over either transport."""


def run(repeats: int, links: Sequence[str] = ()) -> list[Row]:
    """For each link: the round trip of 256 KiB and the throughput of 16 MiB one way plus an acknowledgement.

    By default all links, as far as what they need is installed.
    """
    links = links or (LINKS if find_spec("nvflare") else tuple(_NEAR))
    if unknown := set(links) - set(LINKS):
        raise InputError(f"--link {min(unknown)}: is not a link; there are {', '.join(LINKS)}")
    rows = _on_one_machine(repeats, [name for name in links if name in _NEAR])
    if far := [name for name in links if name not in _NEAR]:
        from veracausa.bench.wire_flare import run as across

        rows += across(repeats, far)
    return rows


def _on_one_machine(repeats: int, links: Sequence[str]) -> list[Row]:
    share_one_heap()
    rows = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # else the copy that we compare with waits for a pool that finds no free core
    try:
        for name in links:
            with _NEAR[name]() as link:
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
            seconds = [timed(partial(self.cross, step)) for step in range(self.count)]
            self.link.receive("b", DONE, 0)
            every.extend(seconds)
            return median(seconds)

        def copying() -> float:
            return median([timed(self.copy) for _ in range(self.count)])

        seconds = alternate({"link": crossing, "copy": copying}, repeats)
        ours = median(seconds["link"])
        warm = sorted(every[self.count :])
        extra = {
            "p50_ms": median(warm) * 1e3,
            "p99_ms": warm[int(0.99 * len(warm))] * 1e3,
            "mib_per_second": nbytes / 2**20 / ours,
        }
        return Row(case, ours, against, median(seconds["copy"]), extra)


@contextmanager
def _threads() -> Iterator[Link]:
    links = thread_links("ab")
    other = threading.Thread(target=answer, args=(links["b"], "a"), daemon=True)
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
    link.declare(*KINDS)
    start()
    yield link
    link.send("b", MORE, 0, echo=0, count=0)
    join()


def _answer_alone(wires: Wires) -> None:
    share_one_heap()
    answer(ProcessLink(wires), "a")


_NEAR = {"threads": _threads, "processes": _processes}
