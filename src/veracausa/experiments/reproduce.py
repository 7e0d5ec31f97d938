"""From experiments' names to their tables, figures and pages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veracausa.errors import InputError
from veracausa.experiments.cells import Cells
from veracausa.experiments.discovery.experiment import DiscoveryExperiment
from veracausa.experiments.discovery.reproduce import DiscoveryReproduction, reproduce_discovery
from veracausa.experiments.experiment import Experiment, load_experiment
from veracausa.experiments.page import shown_texts, write_results
from veracausa.experiments.plan import Cell, GridPoint, points
from veracausa.experiments.schedule import CellWorkers, Progress, Tell, run_cells
from veracausa.experiments.table import PanelTable, gather, works
from veracausa.registry import did_you_mean

CELLS = Path("runs/cells")


@dataclass
class Reproduction:
    """One experiment on its way: what it is, where it is written, its grid, and what came of it."""

    experiment: Experiment
    out: Path
    grid: list[GridPoint]
    progress: Progress
    tables: list[PanelTable]

    @property
    def texts(self) -> list[dict[str, Any]]:
        """The tables as they are shown: `label`, `head` and `body`."""
        return [shown_texts(self.experiment, table) for table in self.tables]


def reproduce(
    name: str, scale: str = "smoke", out: str | Path | None = None, **how: object
) -> Reproduction | DiscoveryReproduction:
    """Run what is missing of an experiment at a scale, and write its table, figures and page into `out`."""
    return reproduce_all([name], scale, out, **how)[0]  # type: ignore[arg-type]


def reproduce_all(
    names: Sequence[str],
    scale: str = "smoke",
    out: str | Path | None = None,
    *,
    cells: str | Path = CELLS,
    panels: Sequence[str] = (),
    workers: int | None = None,
    until: float | None = None,
    overrides: Sequence[str] = (),
    tell: Tell = lambda cell, seconds, progress: None,
) -> list[Reproduction | DiscoveryReproduction]:
    """Run what is missing of all these experiments together, and write each into results/NAME/SCALE (one: into `out`).

    Cells are shared between experiments and kept under `cells`. `panels` are those to run, if not all that the scale
    has. `until` (`time.monotonic`) is when no more cells are begun; the same call goes on from there. `overrides`
    (`a.b=c`) are laid over every job.
    """
    store = Cells(Path(cells))
    found, graphs = list[Reproduction](), dict[str, DiscoveryReproduction]()
    with CellWorkers(workers) as pool:
        for name in names:
            experiment = load_experiment(name, scale)
            place = Path(out) if out is not None else Path("results") / experiment.name / scale
            if isinstance(experiment, DiscoveryExperiment):
                graphs[name] = reproduce_discovery(experiment, place, store, pool, panels, until, overrides, tell)
                continue
            experiment = _with_panels(experiment, panels)
            grid = list(points(experiment, experiment.show, overrides))
            found.append(Reproduction(experiment, place, grid, Progress(0), []))
        progress = run_cells(_cells(found), store, pool, until, tell)
        for each in found:
            for panel in _failing(each.experiment, each.grid, store):
                variant, each.experiment = each.experiment.with_fallback(panel)
                each.grid += points(each.experiment, [variant], overrides)
        progress = progress.and_then(run_cells(_cells(found), store, pool, until, tell))
    for each in found:
        if each.experiment.bench is not None:  # last, when nothing else takes the machine's time
            from veracausa.experiments.times import reproduce_times

            each.progress = reproduce_times(each.experiment, store.root, each.out, until)
            continue
        each.progress = progress.of(_cells([each]), store)
        each.tables = gather(each.experiment, each.grid, store, progress.reasons)
        write_results(each.experiment, each.grid, each.tables, store, each.progress, each.out)
    others = iter(found)
    return [graphs[name] if name in graphs else next(others) for name in names]


def deadline(seconds: float | None) -> float | None:
    """When so many seconds from now are over, by the clock that `until` is read on."""
    return None if seconds is None else time.monotonic() + seconds


def _with_panels(experiment: Experiment, panels: Sequence[str]) -> Experiment:
    for panel in panels:
        if panel not in experiment.panels:
            raise InputError(f"{experiment.name}: no panel is named {panel!r}{did_you_mean(panel, experiment.panels)}")
    return experiment.model_copy(update={"show": tuple(panels)}) if panels else experiment


def _cells(found: Iterable[Reproduction]) -> list[Cell]:
    return [cell for each in found for point in each.grid for cell in point.cells]


def _failing(experiment: Experiment, grid: Sequence[GridPoint], store: Cells) -> list[str]:
    """The panels where the attack reads nothing though nothing is defended: another cut must show what it can do."""
    if experiment.fallback is None or experiment.axis is not None:  # an axis shows more than one cut already
        return []
    undefended = {panel: [p for p in grid if p.panel == panel and p.row == "none"] for panel in experiment.show}
    attack = experiment.fallback.attack
    return [panel for panel, at_none in undefended.items() if works(at_none, attack, store) is False]
