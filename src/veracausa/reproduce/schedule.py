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
from veracausa.reproduce.cells import Cells, run_cell
from veracausa.reproduce.plan import Cell
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

    def and_then(self, other: Progress) -> Progress:
        """Both together."""
        return Progress(
            self.total + other.total,
            self.finished + other.finished,
            self.stopped or other.stopped,
            {**self.failed, **other.failed},
            {**self.unfit, **other.unfit},
        )


Tell = Callable[[Cell, float, Progress], None]


def default_workers() -> int:
    """One after another on a GPU, which a cell fills alone; else as many as there are cores."""
    import torch

    return 1 if torch.cuda.is_available() else min(MOST_WORKERS, usable_cores())


def run_cells(wanted: Iterable[Cell], cells: Cells, workers: int, until: float | None, tell: Tell) -> Progress:
    """Run all that is not finished; `until` is the time (`time.monotonic`) after which no cell is begun."""
    unique = {cell.key: cell for cell in wanted}
    todo = [cell for cell in _in_order(unique.values()) if not cells.finished(cell)]
    progress = Progress(len(unique), len(unique) - len(todo))
    if workers <= 1 or len(todo) <= 1:
        for cell in todo:
            if late(until):
                progress.stopped = True
                break
            if not _in_vain(cell, progress):
                _settle(cell, partial(run_cell, cell, cells), progress, tell)
    elif todo:
        _in_parallel(todo, cells, min(workers, len(todo)), until, progress, tell)
    return progress


def _in_order(cells: Iterable[Cell]) -> Iterator[Cell]:
    """A training, then what reads it, then the next: what is finished when time is up makes whole rows."""
    everything = list(cells)
    readers: dict[str, list[Cell]] = {}
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
    todo: list[Cell], cells: Cells, workers: int, until: float | None, progress: Progress, tell: Tell
) -> None:
    waiting = list(todo)
    running: dict[Future[float], Cell] = {}
    pending = {cell.key for cell in todo if cell.reading is None}
    threads = max(1, usable_cores() // workers)
    context = multiprocessing.get_context("spawn")  # a fork would share the threads of a started torch
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_quiet, initargs=(threads,)) as pool:
        while waiting or running:
            if waiting and late(until):
                progress.stopped, waiting = True, []
            for cell in list(waiting):
                if len(running) >= workers:
                    break
                # One that waits for its training would only hold a worker.
                if (training := cell.training) is None or training.key not in pending:
                    waiting.remove(cell)
                    running[pool.submit(run_cell, cell, cells)] = cell
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                cell = running.pop(future)
                _settle(cell, future.result, progress, tell)
                pending.discard(cell.key)
                waiting = [other for other in waiting if not _in_vain(other, progress)]


def _settle(cell: Cell, result: Callable[[], float], progress: Progress, tell: Tell) -> None:
    """Take a cell's result; one that fails must not take the others with it."""
    seconds = 0.0
    try:
        seconds = result()
        progress.finished += 1
    except InputError as error:
        if cell.reading is None and cell.job.defense.name == "none":
            raise  # not the defense's fault: data that are missing, a model that does not fit
        progress.unfit[cell.key] = str(error)
    except BrokenProcessPool:
        raise RunError(
            "a worker was killed; run the same command again, with fewer --workers if memory is short"
        ) from None
    except VeracausaError as error:
        progress.failed[cell.key] = str(error)
    except (RuntimeError, ValueError, ArithmeticError) as error:
        progress.failed[cell.key] = f"{type(error).__name__}: {error}"
    tell(cell, seconds, progress)


def _in_vain(cell: Cell, progress: Progress) -> bool:
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
