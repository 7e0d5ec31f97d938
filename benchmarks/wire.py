"""What it costs to cross between two parties, beside a plain copy of the same bytes in memory."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.rows import Row, alternate
from benchmarks.wire_flare import DONE, FLOATS, KINDS, MORE, answer, make_identities
from benchmarks.wire_flare import run as across
from benchmarks.wire_stations import HOST, LARGE, SMALL, free_port, running, timed, wait_for_port
from veracausa.config import Job, load_job
from veracausa.data.load import load
from veracausa.data.vertical import VerticalDataset
from veracausa.errors import InputError
from veracausa.runs import folder
from veracausa.training.split.program import PartyProgram, Schema, share
from veracausa.training.train import check_models
from veracausa.wire.credentials import Credentials
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link
from veracausa.wire.network import NetworkOptions
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


# ---- an epoch of split training across three sites on this machine, beside the same epoch in one process -------------

MNIST = {
    "name": "mnist",
    "data": {"name": "mnist"},
    "partition": {"kind": "strips", "parts": [14, 14]},
    "model": {"name": "convnet", "cut": 6},
    "training": {"batch_size": 256, "optimizer": {"name": "adam", "lr": 1e-3}},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


def run_epoch(repeats: int, job: Mapping[str, Any] | None = None, scheme: str = "tcp") -> list[Row]:
    """Seconds of an epoch of MNIST (cut 6, batches of 256) with mutual TLS between three processes, and in threads.

    Each run trains for one epoch more than is measured: the first one warms up.
    """
    settings = load_job({**MNIST, **(job or {})}, [f"training.epochs={repeats + 1}"])
    dataset = load(settings)
    with TemporaryDirectory() as scratch:
        ours = _across_sites(settings, dataset, Path(scratch), scheme)
        theirs = _in_threads(settings, dataset, Path(scratch) / "threads")
    case = f"flare {scheme} epoch of {settings.data.name}"
    return [Row(case, median(ours), "threads in one process", median(theirs), {"epochs": len(ours)})]


class _Clock:
    """Hears the active party's events, and keeps when each epoch ended."""

    def __init__(self) -> None:
        self._ends: list[float] = []

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "epoch":
            self._ends.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Of every epoch but the first."""
        return [end - begin for begin, end in zip(self._ends, self._ends[1:], strict=False)]


def _programs(job: Job, dataset: VerticalDataset, path: Path, shared: bool) -> dict[str, PartyProgram]:
    folder.create(path, job, {name: "active" if name == dataset.active else "passive" for name in dataset.parties})
    order = sorted(dataset.parties, key=lambda name: name == dataset.active)
    hand = share if shared else (lambda data: data)
    return {name: PartyProgram(job, hand(dataset.parties[name]), Schema.of(dataset), path) for name in order}


def _in_threads(job: Job, dataset: VerticalDataset, path: Path) -> list[float]:
    clock = _Clock()
    threads = check_models(job, dataset)
    Launch("threads", job.runtime.timeout, cpu_threads=threads).run(_programs(job, dataset, path, False), clock)
    return clock.seconds()


def _across_sites(job: Job, dataset: VerticalDataset, scratch: Path, scheme: str) -> list[float]:
    identities = make_identities(scratch / "identities", tuple(dataset.parties))
    members: dict[str, dict[str, str]] = {name: {} for name in dataset.parties}
    members[dataset.active] = {"address": f"{HOST}:{free_port()}"}
    net = NetworkOptions.model_validate(
        {"name": "bench", "server": dataset.active, "scheme": scheme, "members": members}
    )
    programs = _programs(job, dataset, scratch / "sites", True)
    names = sorted(programs, key=lambda name: name != dataset.active)
    with running(*(partial(_take_part, net, programs[name], identities[name]) for name in names), apart=False) as way:
        way.wait()
        return way.together()[0]


def _take_part(net: NetworkOptions, program: PartyProgram, credentials: Credentials, pipe: Connection) -> None:
    from veracausa.wire.flare.cell import FlareSite
    from veracausa.wire.threads import share_one_heap

    share_one_heap()
    torch.set_num_threads(1)
    me, clock = program.data.name, _Clock()
    if me != net.server:
        wait_for_port(int(str(net.members[net.server].address).rsplit(":")[1]))
    with FlareSite(me, net, credentials) as site:
        link = site.connect([name for name in net.members if name != me], "bench", 60.0)
        pipe.send("ready")
        pipe.recv()
        program(link, clock)
        link.close()
        link.wait_for_others(60.0)
    pipe.send(clock.seconds())
    pipe.recv()
