"""Processes that send to each other at the bench's word: one asks and takes the time, the others answer."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

HOST = "localhost"
SMALL, LARGE = 256 << 10, 16 << 20
PATIENCE = 120.0
LEAVE = 5.0
"""Seconds that a process may take to start, and to end."""


@dataclass(frozen=True)
class Task:
    """Cross so often with so many bytes; they come back, or are acknowledged."""

    echo: bool
    count: int

    @property
    def nbytes(self) -> int:
        return SMALL if self.echo else LARGE


Station = Callable[[Connection], None]
"""What one process does; it can be pickled, says that it is ready, and ends when the pipe says so."""
Crossing = Callable[[Task], AbstractContextManager[Callable[[int], object]]]
"""For a task: what crosses once, given the number of the crossing."""


def take_orders(pipe: Connection, crossing: Crossing, beside: Sequence[float] = ()) -> None:
    """The asking process: does each task that comes, and reports the seconds of every crossing.

    `beside` are seconds that the crossings themselves write down.
    """
    pipe.send("ready")
    while (task := pipe.recv()) is not None:
        with crossing(task) as cross:
            seconds = [timed(partial(cross, step)) for step in range(task.count)]
        pipe.send((seconds, list(beside)))


def stand_by(pipe: Connection) -> None:
    """An answering process whose threads do the work: ready until it is told to end."""
    pipe.send("ready")
    pipe.recv()


class Way:
    """One way to cross between running processes; the first of them asks."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def measure(self, task: Task) -> tuple[list[float], list[float]]:
        """The seconds of every crossing, and those that stand beside them."""
        self._pipes[0].send(task)
        measured: tuple[list[float], list[float]] = self._pipes[0].recv()
        return measured

    def together(self) -> list[list[float]]:
        """Let every process begin at once; what each of them reports."""
        for pipe in self._pipes:
            pipe.send("go")
        return [pipe.recv() for pipe in self._pipes]

    def wait(self) -> None:
        """Until every process is ready."""
        for pipe in self._pipes:
            if not pipe.poll(PATIENCE) or pipe.recv() != "ready":
                raise RuntimeError(f"a process of the bench was not ready within {PATIENCE:g} s")

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)


@contextmanager
def running(*stations: Station, apart: bool = True) -> Iterator[Way]:
    """The processes, started at once; `wait` before they are measured. They end with the block.

    With `apart` the one that asks has half of the cores and the others have the other half.
    """
    context = multiprocessing.get_context("spawn")
    started = []
    for number, station in enumerate(stations):
        here, there = context.Pipe()
        args = (number, station, there) if apart else (there,)
        process = context.Process(target=_on_its_half if apart else station, args=args, daemon=True)
        process.start()
        there.close()
        started.append((process, here))
    try:
        way = Way([pipe for _, pipe in started])
        yield way
        way.end()
        for process, _ in started:
            process.join(LEAVE)
    finally:
        for process, _ in started:
            process.kill()


def _on_its_half(number: int, station: Station, pipe: Connection) -> None:
    """The process that asks has one half of the cores, those that answer the other, as if they were two machines.

    Otherwise a sender is at times on the core that its reader is woken on, and nobody knows how often.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        half = len(cores) // 2
        os.sched_setaffinity(0, (cores[half:] if number else cores[:half]) or cores)
    station(pipe)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    """Until somebody listens: FLARE would try again only after a pause that doubles each time."""
    for _ in range(int(PATIENCE / 0.05)):
        try:
            socket.create_connection((HOST, port), 1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nobody listened at port {port} within {PATIENCE:g} s")


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
