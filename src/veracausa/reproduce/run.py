"""From an experiment's name to its table, figures and page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veracausa.reproduce.cells import Cells
from veracausa.reproduce.experiment import Experiment, load_experiment
from veracausa.reproduce.page import write_results
from veracausa.reproduce.plan import Cell, Point, points
from veracausa.reproduce.schedule import Progress, Tell, default_workers, run_cells
from veracausa.reproduce.table import PanelTable, gather, works

CELLS = Path("runs/cells")


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` leaves behind."""

    experiment: Experiment
    out: Path
    tables: list[PanelTable]
    progress: Progress


def reproduce(
    name: str,
    scale: str = "smoke",
    out: str | Path | None = None,
    *,
    cells: str | Path = CELLS,
    workers: int | None = None,
    until: float | None = None,
    overrides: Sequence[str] = (),
    tell: Tell = lambda cell, seconds, progress: None,
) -> Reproduction:
    """Run what is missing of an experiment at a scale, and write its table, figures and page into `out`.

    Cells are shared between experiments and kept under `cells`. `until` (`time.monotonic`) is when no more are begun;
    the same call goes on from there. `overrides` (`a.b=c`) are laid over every job.
    """
    experiment = load_experiment(name, scale)
    place = Path(out) if out is not None else Path("results") / experiment.name / scale
    store = Cells(Path(cells))
    if experiment.bench is not None:
        from veracausa.reproduce.times import reproduce_times

        progress = reproduce_times(experiment, store.root, place, overrides, until)
        return Reproduction(experiment, place, [], progress)
    workers = workers or default_workers()
    grid = list(points(experiment, experiment.show, overrides))
    progress = run_cells(_cells(grid), store, workers, until, tell)
    for panel in _failing(experiment, grid, store):
        variant, experiment = experiment.with_fallback(panel)
        rest = list(points(experiment, [variant], overrides))
        progress = progress.and_then(run_cells(_cells(rest), store, workers, until, tell))
        grid += rest
    tables = gather(experiment, grid, store, {**progress.unfit, **progress.failed})
    write_results(experiment, grid, tables, store, progress, place)
    return Reproduction(experiment, place, tables, progress)


def deadline(seconds: float | None) -> float | None:
    """When so many seconds from now are over, by the clock that `until` is read on."""
    return None if seconds is None else time.monotonic() + seconds


def _cells(grid: Sequence[Point]) -> list[Cell]:
    return [cell for point in grid for cell in point.cells]


def _failing(experiment: Experiment, grid: Sequence[Point], store: Cells) -> list[str]:
    """The panels where the attack reads nothing though nothing is defended: another cut must show what it can do."""
    if experiment.fallback is None or experiment.axis is not None:  # an axis shows more than one cut already
        return []
    found = []
    for panel in experiment.show:
        undefended = [point for point in grid if point.panel == panel and point.row == "none"]
        if works(undefended, experiment.fallback.attack, store) is False:
            found.append(panel)
    return found
