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
    first = [panel for panel in experiment.show if experiment.panels[panel].only_if_fails is None]
    grid = list(points(experiment, first, overrides))
    progress = run_cells(_cells(grid), store, workers, until, tell)
    more = [panel for panel in experiment.show if panel not in first and _needed(experiment, panel, grid, store)]
    if more:
        rest = list(points(experiment, more, overrides))
        progress = _both(progress, run_cells(_cells(rest), store, workers, until, tell))
        grid += rest
    tables = gather(experiment, grid, store, {**progress.unfit, **progress.failed})
    write_results(experiment, grid, tables, store, progress, place)
    return Reproduction(experiment, place, tables, progress)


def deadline(seconds: float | None) -> float | None:
    """When so many seconds from now are over, by the clock that `until` is read on."""
    return None if seconds is None else time.monotonic() + seconds


def _cells(grid: Sequence[Point]) -> list[Cell]:
    return [cell for point in grid for cell in point.cells]


def _needed(experiment: Experiment, panel: str, grid: Sequence[Point], store: Cells) -> bool:
    """Whether the attack fails undefended where the paper has it, so that a shallower cut must show what it can do."""
    wanted = experiment.panels[panel].only_if_fails
    assert wanted is not None
    undefended = [point for point in grid if point.panel == wanted.panel and point.row == "none"]
    return works(undefended, wanted.attack, store) is False


def _both(first: Progress, second: Progress) -> Progress:
    return Progress(
        first.total + second.total,
        first.finished + second.finished,
        first.stopped or second.stopped,
        {**first.failed, **second.failed},
        {**first.unfit, **second.unfit},
    )
