"""A cell is one piece of work of an experiment: it is known by the hash of its settings, and its result is kept.

A cell type says what its settings are, how it runs and which cell it reads. The store, the schedule and the tables
treat all types alike.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from veracausa.atomic import atomic_write
from veracausa.errors import RunError
from veracausa.events import Observer
from veracausa.runs.folder import write_json


@dataclass(frozen=True)
class CellStore:
    """The finished and unfinished cells below one folder.

    `results/KEY.json` (and `.safetensors`, with pictures) is all that a table needs, and can be carried from machine
    to machine. `work/KEY/` is the folder of a cell's run. A training whose result is there is repeated only if a new
    attack needs its models.
    """

    root: Path

    def record(self, cell: Cell) -> Path:
        """The file that says what the cell found; it is there once the cell is finished."""
        return self.root / "results" / f"{cell.key}.json"

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """What the file says; None while it is not there."""
        try:
            found: dict[str, Any] = json.loads(self.record(cell).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def keep(self, cell: Cell, found: Mapping[str, Any], pictures: bytes | None = None) -> None:
        """Write down what a cell found; the JSON last, because it says that the cell is finished."""
        self.record(cell).parent.mkdir(parents=True, exist_ok=True)
        if pictures is not None:
            atomic_write(self.pictures(cell), pictures)
        write_json(self.record(cell), {"settings": cell.settings, **found})

    def pictures(self, cell: Cell) -> Path:
        """Where its pictures are, if it has any."""
        return self.record(cell).with_suffix(".safetensors")

    def work(self, cell: Cell) -> Path:
        """The folder of its run."""
        return self.root / "work" / cell.key

    @contextmanager
    def lock(self, cell: Cell) -> Iterator[None]:
        """Wait until no other process works on this cell; the lock goes with the process that holds it."""
        lock = self.root / "work" / f"{cell.key}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Cell(ABC):
    """One piece of work. Types are frozen dataclasses, so that a cell can be sent to another process."""

    alone: ClassVar[bool] = False
    """Whether nothing else may run at the same time: it takes times."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that its result depends on."""

    @property
    @abstractmethod
    def about(self) -> str:
        """What it is, in a line of progress."""

    @abstractmethod
    def run(self, store: CellStore, observer: Observer) -> None:
        """Do the work, or go on with it where it was killed, and keep the result."""

    @cached_property
    def key(self) -> str:
        written = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(written.encode()).hexdigest()[:20]

    @property
    def needs(self) -> Cell | None:
        """The cell whose work it reads."""
        return None

    @property
    def fatal(self) -> tuple[type[Exception], ...]:
        """Errors that end the whole experiment; any other error only means that this cell has no result."""
        return ()

    def result(self, store: CellStore) -> dict[str, Any] | None:
        """What it found; None while it is not finished."""
        return store.read(self)


class DeviceLost(RunError):
    """An error ended this process's GPU. A cell that is compiled may well run in another process, uncompiled."""


def run_cell(cell: Cell, store: CellStore, observer: Observer = lambda event: None) -> float:
    """Run the cell unless it is finished. Returns the seconds it took."""
    from veracausa.models.runner import device_is_lost

    started = time.perf_counter()
    with store.lock(cell):
        if cell.result(store) is not None:
            return 0.0
        try:
            cell.run(store, observer)
        except RuntimeError as error:
            if device_is_lost():
                raise DeviceLost((str(error).splitlines() or [type(error).__name__])[0]) from error
            raise
    return time.perf_counter() - started
