"""From experiments' names to their tables, figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veracausa.experiments.cell import CellStore
from veracausa.experiments.discovery_experiment import DiscoveryReproduction
from veracausa.experiments.experiment import DiscoveryExperiment, load_experiment
from veracausa.experiments.grid import Reproduction
from veracausa.experiments.page import write_results
from veracausa.experiments.schedule import CellWorkers, Tell, run_cells
from veracausa.experiments.schedule import until as no_later_than
from veracausa.experiments.times import TimesReproduction
from veracausa.experiments.training_experiment import TrainingReproduction

CELLS = Path("runs/cells")


def reproduce(name: str, scale: str = "smoke", out: str | Path | None = None, **how: object) -> Reproduction:
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
) -> list[Reproduction]:
    """Run what is missing of all these experiments together, and write each into results/NAME/SCALE (one: into `out`).

    Cells are shared between experiments and kept under `cells`. `panels` are those to run, if not all that the scale
    has. `until` (`time.monotonic`) is when no more cells are begun; the same call goes on from there. `overrides`
    (`a.b=c`) are laid over every job.
    """
    store, gate = CellStore(Path(cells)), no_later_than(until)
    found = [begin(name, scale, out, panels, overrides) for name in names]
    with CellWorkers(workers) as pool:
        progress = run_cells([cell for each in found for cell in each.cells], store, pool, gate, tell)
        added = []
        for each in found:
            places = each.further_places(store)
            each.places += places
            added += [cell for place in places for cell in place.cells.values()]
        if added:
            progress = progress.and_then(run_cells(added, store, pool, gate, tell))
    for each in found:
        each.progress = progress.of(each.cells, store)
        each.gather(store, progress.reasons)
        each.progress.finished += each.kept_cells
        write_results(each, store)
    return found


def begin(
    name: str, scale: str, out: str | Path | None, panels: Sequence[str] = (), overrides: Sequence[str] = ()
) -> Reproduction:
    """The experiment of this name with its grid, before any cell is run."""
    experiment = load_experiment(name, scale).showing(panels)
    place = Path(out) if out is not None else Path("results") / experiment.name / scale
    if isinstance(experiment, DiscoveryExperiment):
        return DiscoveryReproduction.begin(experiment, place, overrides)
    if experiment.bench is not None:
        return TimesReproduction.begin(experiment, place)
    return TrainingReproduction.begin(experiment, place, overrides)
