"""Where finished cells are kept, and how one is run. What a cell found is small; what it took to find it is not.

`results/KEY.json` (and `.safetensors`, with pictures) is all that a table needs, and can be carried from machine to
machine. `work/KEY/` is the run's folder: a training whose results are there is repeated only if a new attack needs it.
"""

from __future__ import annotations

import fcntl
import gc
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veracausa.experiments.discovery.cells import DiscoveryCell, discover
from veracausa.experiments.plan import AnyCell, Cell
from veracausa.runs.atomic import atomic_write
from veracausa.runs.folder import Run, write_json
from veracausa.runs.record import invre, number


@dataclass(frozen=True)
class Cells:
    """The finished and unfinished cells below one folder."""

    root: Path

    def result(self, cell: AnyCell) -> dict[str, Any] | None:
        """What the cell found; None while it is not finished."""
        try:
            found: dict[str, Any] = json.loads(self._json(cell).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def finished(self, cell: AnyCell) -> bool:
        return self._json(cell).is_file()

    def keep(self, cell: AnyCell, found: Mapping[str, Any], pictures: bytes | None = None) -> None:
        """Write down what a cell found; the JSON last, because it says that the cell is finished."""
        self._json(cell).parent.mkdir(parents=True, exist_ok=True)
        if pictures is not None:
            atomic_write(self.pictures(cell), pictures)
        write_json(self._json(cell), {"settings": cell.settings, **found})

    def pictures(self, cell: AnyCell) -> Path:
        """Where its pictures are, if it has any."""
        return self.root / "results" / f"{cell.key}.safetensors"

    def work(self, cell: Cell) -> Path:
        """The folder of its run."""
        return self.root / "work" / cell.key

    def trained(self, cell: Cell) -> Run | None:
        """The finished training of a cell; None where it is not there, or not any more."""
        path = self.work(cell)
        if not (path / "config.toml").is_file():
            return None
        run = Run(path)
        models = [path / "parties" / name / "model.safetensors" for name in run.job.parties.passive]
        there = run.status.get("state") == "done" and run.summary and all(model.is_file() for model in models)
        return run if there else None

    @contextmanager
    def alone(self, cell: AnyCell) -> Iterator[None]:
        """Wait until no other process works on this cell; the lock goes with the process that holds it."""
        lock = self.root / "work" / f"{cell.key}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _json(self, cell: AnyCell) -> Path:
        return self.root / "results" / f"{cell.key}.json"


def run_cell(cell: AnyCell, cells: Cells) -> float:
    """Run the cell, or go on with it where it was killed; gives the seconds it took, 0 if it was finished."""
    started = time.perf_counter()
    if isinstance(cell, DiscoveryCell):
        with cells.alone(cell):
            if cells.finished(cell):
                return 0.0
            cells.keep(cell, discover(cell))
        return time.perf_counter() - started
    _make_room(cell)
    if cell.reading is None:
        with cells.alone(cell):
            if cells.finished(cell):
                return 0.0
            _train(cell, cells)
        return time.perf_counter() - started
    from veracausa.experiments.attack_cell import read

    training = cell.training
    if training is not None and not cells.finished(cell) and cells.trained(training) is None:
        with cells.alone(training):
            if cells.trained(training) is None:  # only its results came along: the model is needed again
                _train(training, cells)
    with cells.alone(cell):
        if cells.finished(cell):
            return 0.0
        found, pictures = read(cell, cells)
        cells.keep(cell, {**found, "seconds": time.perf_counter() - started}, pictures)
        shutil.rmtree(cells.work(cell), ignore_errors=True)  # what an attack's own training left is of no more use
    return time.perf_counter() - started


def _make_room(cell: Cell) -> None:
    """Give back what the cell before held: many follow each other in one process."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if cell.job.runtime.compile:
        torch._dynamo.reset()  # it compiles one function for so many objects only, then silently stops


def _train(cell: Cell, cells: Cells) -> None:
    from veracausa.audit.settings import SNAPSHOTS
    from veracausa.training.train import train

    path = cells.work(cell)
    begun = (path / "config.toml").is_file()
    if not begun:
        shutil.rmtree(path, ignore_errors=True)
    # The snapshots change nothing that a training finds, so they are no part of what it is known by.
    moments = tuple(sorted({*cell.job.checkpoints.moments, *SNAPSHOTS}))
    kept = cell.job.checkpoints.model_copy(update={"moments": moments})
    run = train(cell.job.model_copy(update={"checkpoints": kept}), path, resume=begun)
    for folder in path.glob("parties/*/checkpoints"):
        shutil.rmtree(folder)  # the trained models stay; the way there takes most of the room
    cells.keep(cell, training_result(run))


def training_result(run: Run) -> dict[str, Any]:
    """What a table needs of a training: scores, the risk meter's InvRE, the curves, notes on the data."""
    summary = run.summary
    found: dict[str, Any] = {}
    test = summary.get("test") or summary.get("validation") or {}
    for score in ("accuracy", "loss"):
        if number(test.get(score)) is not None:
            found[score] = {"mean": test[score]}
    risks = [party.get("risk") or {} for party in summary.get("parties", {}).values()]
    if known := [value for risk in risks if (value := invre(risk)) is not None]:
        found["invre"] = {"mean": max(known), "exact": 1.0}
    reasons = [str(risk["unavailable"]).rstrip(".") for risk in risks if "unavailable" in risk]
    epochs = [record for record in run.metrics if record.get("event") == "epoch"]
    curves = [{"epoch": record.get("epoch"), **(record.get("test") or {})} for record in epochs if record.get("test")]
    return {
        "scores": found,
        "unavailable": {"invre": f"InvRE: {reasons[0]}"} if reasons else {},
        "curves": curves,
        "seconds": summary.get("seconds"),
        "notes": summary.get("notes", []),
        "environment": json.loads((run.path / "environment.json").read_text(encoding="utf-8")),
    }
