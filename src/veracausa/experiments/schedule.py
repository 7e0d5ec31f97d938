"""Runs cells in an order that fits the machine and the time there is: several at once where there is room."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial

from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore, DeviceLost, run_cell
from veracausa.runs.machine import usable_cores

MOST_WORKERS = 16


class OutOfTime(RunError):
    """The time is up in the middle of a cell; what was checkpointed can go on with --resume."""

    def __init__(self) -> None:
        super().__init__("the time is up; go on with --resume")


@dataclass
class CellProgress:
    """How far the cells are."""

    total: int
    finished: int = 0
    stopped: bool = False
    """Whether time was up before all were begun."""
    failed: dict[str, str] = field(default_factory=dict)
    """Key -> what went wrong, in a sentence."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Key -> why a cell cannot be run at all: an attack that does not fit what is sent."""
    late: dict[str, str] = field(default_factory=dict)
    """Key -> why there was no time for a cell."""

    def and_then(self, later: CellProgress) -> CellProgress:
        """What this comes to with a later round over other cells."""
        return CellProgress(
            self.total + later.total,
            self.finished + later.finished,
            self.stopped or later.stopped,
            self.failed | later.failed,
            self.unfit | later.unfit,
            self.late | later.late,
        )

    def of(self, some: Iterable[Cell], store: CellStore) -> CellProgress:
        """How far these of the cells are."""
        unique = {cell.key: cell for cell in some}
        finished = sum(cell.result(store) is not None for cell in unique.values())
        failed, unfit, late = (
            {key: why for key, why in reasons.items() if key in unique}
            for reasons in (self.failed, self.unfit, self.late)
        )
        left = finished + len(failed) + len(unfit) < len(unique)
        return CellProgress(len(unique), finished, self.stopped and left, failed, unfit, late)

    @property
    def reasons(self) -> dict[str, str]:
        """Why some have no result."""
        return {**self.unfit, **self.failed}


Tell = Callable[[Cell, float, CellProgress], None]
Gate = Callable[[Cell], str]
"""Why a cell may not begin now; empty where it may."""


def deadline(seconds: float | None) -> float | None:
    """When so many seconds from now are over, by `time.monotonic`."""
    return None if seconds is None else time.monotonic() + seconds


def until(end: float | None) -> Gate:
    """No cell begins after this time (`time.monotonic`)."""
    return lambda cell: "time was up" if end is not None and time.monotonic() >= end else ""


class CellWorkers:
    """As many processes as cells may run in at once, started when the first are needed; one: this process itself."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or default_workers()
        self._pool: ProcessPoolExecutor | None = None
        self._uncompiled: ProcessPoolExecutor | None = None
        self._lost = False

    def __enter__(self) -> CellWorkers:
        return self

    def __exit__(self, *failure: object) -> None:
        for pool in (self._pool, self._uncompiled):
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def run_here(self, cell: Cell, store: CellStore, observer: Observer) -> float:
        """Run the cell in this process; in another, uncompiled, once this one has lost its GPU."""
        if not self._lost:
            try:
                return run_cell(cell, store, observer)
            except DeviceLost:
                self._lost = True
        return self.uncompiled.submit(run_cell, cell, store).result()

    @property
    def uncompiled(self) -> ProcessPoolExecutor:
        """Processes where nothing is compiled, a new one for every cell, for cells that ended a GPU's context."""
        if self._uncompiled is None:
            context = multiprocessing.get_context("spawn")
            threads = max(1, usable_cores() // self.count)
            start = (_uncompiled_worker, (threads,))
            self._uncompiled = ProcessPoolExecutor(self.count, context, *start, max_tasks_per_child=1)
        return self._uncompiled

    @property
    def pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            threads = max(1, usable_cores() // self.count)
            context = multiprocessing.get_context("spawn")  # a fork would share the threads of a started torch
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_limit_threads, initargs=(threads,))
        return self._pool


def default_workers() -> int:
    """One after another on a GPU, which a cell fills alone; else as many as there are cores."""
    import torch

    return 1 if torch.cuda.is_available() else min(MOST_WORKERS, usable_cores())


def run_cells(
    wanted: Iterable[Cell],
    store: CellStore,
    workers: CellWorkers,
    gate: Gate,
    tell: Tell,
    observer: Observer = lambda event: None,
) -> CellProgress:
    """Run all that is not finished and may begin. `tell` hears of every cell that ended.

    `observer` hears what happens inside cells that run in this process.
    """
    unique = {cell.key: cell for cell in wanted}
    todo = [cell for cell in _in_order(unique.values()) if cell.result(store) is None]
    progress = CellProgress(len(unique), len(unique) - len(todo))
    together = [cell for cell in todo if not cell.alone]
    if workers.count > 1 and len(together) > 1:
        _in_parallel(together, store, workers, gate, progress, tell)
        todo = [cell for cell in todo if cell.alone]
    for cell in todo:
        if why := gate(cell):
            progress.late[cell.key], progress.stopped = why, True
        elif not _in_vain(cell, progress):
            try:
                _settle(cell, partial(workers.run_here, cell, store, observer), progress, tell)
            except OutOfTime as error:
                progress.late[cell.key], progress.stopped = str(error), True
                break
    return progress


def _in_order(cells: Iterable[Cell]) -> Iterator[Cell]:
    """A training, then what reads it, then the next: what is finished when time is up makes whole rows.

    Cells that must run alone come last.
    """
    everything = sorted(cells, key=lambda cell: cell.alone)
    readers: dict[str, list[Cell]] = {}
    for cell in everything:
        if cell.needs is not None:
            readers.setdefault(cell.needs.key, []).append(cell)
    seen: set[str] = set()
    for cell in everything:
        for each in (cell, *readers.get(cell.key, ())):
            if each.key not in seen:
                seen.add(each.key)
                yield each


def _in_parallel(
    todo: list[Cell], store: CellStore, workers: CellWorkers, gate: Gate, progress: CellProgress, tell: Tell
) -> None:
    waiting = list(todo)
    running: dict[Future[float], Cell] = {}
    pending = {cell.key for cell in todo}
    again: set[str] = set()
    """Cells that ended a GPU's context, or came to a process whose context had ended."""
    while waiting or running:
        for cell in list(waiting):
            if len(running) >= workers.count:
                break
            if why := gate(cell):
                progress.late[cell.key], progress.stopped = why, True
                waiting.remove(cell)
            # One that waits for the cell it reads would only hold a worker.
            elif cell.needs is None or cell.needs.key not in pending:
                waiting.remove(cell)
                running[workers.pool.submit(run_cell, cell, store)] = cell
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            cell = running.pop(future)
            if isinstance(future.exception(), DeviceLost) and cell.key not in again:
                again.add(cell.key)
                running[workers.uncompiled.submit(run_cell, cell, store)] = cell
                continue
            _settle(cell, future.result, progress, tell)
            pending.discard(cell.key)
            waiting = [other for other in waiting if not _in_vain(other, progress)]


def _settle(cell: Cell, result: Callable[[], float], progress: CellProgress, tell: Tell) -> None:
    """Take a cell's result; one that fails must not take the others with it."""
    seconds = 0.0
    try:
        seconds = result()
        progress.finished += 1
    except OutOfTime:
        raise
    except BrokenProcessPool:
        raise RunError(
            "a worker was killed; run the same command again, with fewer --workers if memory is short"
        ) from None
    except Exception as error:  # a user's own defense may fail in any way
        if isinstance(error, cell.fatal):
            raise
        why = str(error) if isinstance(error, VeracausaError) else f"{type(error).__name__}: {error}"
        (progress.unfit if isinstance(error, InputError) else progress.failed)[cell.key] = why
    tell(cell, seconds, progress)


def _in_vain(cell: Cell, progress: CellProgress) -> bool:
    """Whether the cell it reads could not be run; then it has the same reason."""
    for reasons in (progress.failed, progress.unfit):
        if cell.needs is not None and cell.needs.key in reasons:
            reasons[cell.key] = reasons[cell.needs.key]
            return True
    return False


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _uncompiled_worker(threads: int) -> None:
    from veracausa.models.runner import UNCOMPILED

    os.environ[UNCOMPILED] = "1"
    _limit_threads(threads)


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"(?:\d+(?:\.\d+)?[smh])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smh])")


def read_seconds(text: str) -> float | None:
    """Seconds of a time as `20m`, `90s` or `1h30m`; None where it is not written like that."""
    word = text.strip().lower()
    if not _WRITTEN.fullmatch(word):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(word))


def written_seconds(seconds: float) -> str:
    """As `read_seconds` takes it, rounded up: `45s`, `8m`, `1h30m`."""
    if seconds <= 90:
        return f"{max(1, math.ceil(seconds))}s"
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")


class Budget:
    """Counts from when it is made, and remembers what cells of each kind took."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._started = clock()
        self._taken: dict[str, list[float]] = {}

    @property
    def left(self) -> float:
        return self._started + self.seconds - self._clock()

    def took(self, kind: str, seconds: float) -> None:
        """A cell of this kind took so long."""
        self._taken.setdefault(kind, []).append(seconds)

    def estimate(self, kind: str) -> float:
        """What the next of its kind will take: the longest of its own so far, else the median of all; 0 unknown."""
        if own := self._taken.get(kind):
            return max(own)
        everybody = [seconds for taken in self._taken.values() for seconds in taken]
        return statistics.median(everybody) if everybody else 0.0

    def fits(self, kind: str) -> bool:
        """Whether one of this kind can be expected to end in time."""
        return self.left > self.estimate(kind)

    def why_not(self, kind: str) -> str:
        """Why one of this kind may not begin now; empty where it fits."""
        if self.fits(kind):
            return ""
        return f"no time: about {self.estimate(kind):.0f} s needed, {max(0.0, self.left):.0f} s left"

    def check(self) -> None:
        """Raise `OutOfTime` when nothing is left."""
        if self.left <= 0:
            raise OutOfTime
