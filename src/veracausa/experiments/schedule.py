"""Cells in an order that fits the machine: several at once where there is room, and none begun when time is up."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial

from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.experiments.cells import Cells, run_cell
from veracausa.experiments.plan import AnyCell, Cell
from veracausa.runs.machine import usable_cores

MOST_WORKERS = 16


@dataclass
class Progress:
    """How far the cells are."""

    total: int
    finished: int = 0
    stopped: bool = False
    """Whether time was up before all were begun."""
    failed: dict[str, str] = field(default_factory=dict)
    """Key -> what went wrong, in a sentence."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Key -> why a cell cannot be run at all: an attack that does not fit what is sent."""

    def and_then(self, later: Progress) -> Progress:
        """What two rounds over the same and more cells come to."""
        stopped = self.stopped or later.stopped
        return Progress(later.total, later.finished, stopped, self.failed | later.failed, self.unfit | later.unfit)

    def of(self, some: Iterable[AnyCell], cells: Cells) -> Progress:
        """How far these of the cells are."""
        unique = {cell.key: cell for cell in some}
        finished = sum(cells.finished(cell) for cell in unique.values())
        failed = {key: reason for key, reason in self.failed.items() if key in unique}
        unfit = {key: reason for key, reason in self.unfit.items() if key in unique}
        left = finished + len(failed) + len(unfit) < len(unique)
        return Progress(len(unique), finished, self.stopped and left, failed, unfit)

    @property
    def reasons(self) -> dict[str, str]:
        """Why some have no result."""
        return {**self.unfit, **self.failed}


Tell = Callable[[AnyCell, float, Progress], None]


class CellWorkers:
    """As many processes as cells may run in at once, started when the first are needed; one: this process itself."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or default_workers()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> CellWorkers:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            threads = max(1, usable_cores() // self.count)
            context = multiprocessing.get_context("spawn")  # a fork would share the threads of a started torch
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_quiet, initargs=(threads,))
        return self._pool


def default_workers() -> int:
    """One after another on a GPU, which a cell fills alone; else as many as there are cores."""
    import torch

    return 1 if torch.cuda.is_available() else min(MOST_WORKERS, usable_cores())


def run_cells(
    wanted: Iterable[AnyCell], cells: Cells, workers: CellWorkers, until: float | None, tell: Tell
) -> Progress:
    """Run all that is not finished; `until` is the time (`time.monotonic`) after which no cell is begun."""
    unique = {cell.key: cell for cell in wanted}
    todo = [cell for cell in _in_order(unique.values()) if not cells.finished(cell)]
    progress = Progress(len(unique), len(unique) - len(todo))
    if workers.count > 1 and len(todo) > 1:
        _in_parallel(todo, cells, workers, until, progress, tell)
        return progress
    for cell in todo:
        if late(until):
            progress.stopped = True
            break
        if not _in_vain(cell, progress):
            _settle(cell, partial(run_cell, cell, cells), progress, tell)
    return progress


def _in_order(cells: Iterable[AnyCell]) -> Iterator[AnyCell]:
    """A training, then what reads it, then the next: what is finished when time is up makes whole rows."""
    everything = list(cells)
    readers: dict[str, list[AnyCell]] = {}
    for cell in everything:
        if (training := cell.training) is not None:
            readers.setdefault(training.key, []).append(cell)
    seen: set[str] = set()
    for cell in everything:
        for each in (cell, *readers.get(cell.key, ())):
            if each.key not in seen and (each is cell or cell.reading is None):
                seen.add(each.key)
                yield each


def _in_parallel(
    todo: list[AnyCell], cells: Cells, workers: CellWorkers, until: float | None, progress: Progress, tell: Tell
) -> None:
    waiting = list(todo)
    running: dict[Future[float], AnyCell] = {}
    pending = {cell.key for cell in todo if cell.reading is None}
    while waiting or running:
        if waiting and late(until):
            progress.stopped, waiting = True, []
        for cell in list(waiting):
            if len(running) >= workers.count:
                break
            # One that waits for its training would only hold a worker.
            if (training := cell.training) is None or training.key not in pending:
                waiting.remove(cell)
                running[workers.pool.submit(run_cell, cell, cells)] = cell
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            cell = running.pop(future)
            _settle(cell, future.result, progress, tell)
            pending.discard(cell.key)
            waiting = [other for other in waiting if not _in_vain(other, progress)]


def _settle(cell: AnyCell, result: Callable[[], float], progress: Progress, tell: Tell) -> None:
    """Take a cell's result; one that fails must not take the others with it."""
    seconds = 0.0
    try:
        seconds = result()
        progress.finished += 1
    except InputError as error:
        if isinstance(cell, Cell) and cell.reading is None and cell.job.defense.name == "none":
            raise  # not the defense's fault: data that are missing, a model that does not fit
        progress.unfit[cell.key] = str(error)
    except BrokenProcessPool:
        raise RunError(
            "a worker was killed; run the same command again, with fewer --workers if memory is short"
        ) from None
    except VeracausaError as error:
        progress.failed[cell.key] = str(error)
    except Exception as error:  # a user's own defense may fail in any way
        progress.failed[cell.key] = f"{type(error).__name__}: {error}"
    tell(cell, seconds, progress)


def _in_vain(cell: AnyCell, progress: Progress) -> bool:
    """Whether the training it reads could not be run; then it has the same reason."""
    training = cell.training
    for reasons in (progress.failed, progress.unfit):
        if training is not None and training.key in reasons:
            reasons[cell.key] = reasons[training.key]
            return True
    return False


def late(until: float | None) -> bool:
    """Whether no cell should be begun any more."""
    return until is not None and time.monotonic() >= until


def _quiet(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
