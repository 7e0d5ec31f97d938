"""Cells are known by their settings, run once, shared, resumed and locked, in order and within the time there is."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from veracausa.config import load_job
from veracausa.errors import InputError, RunError
from veracausa.experiments import schedule
from veracausa.experiments.cell import Cell, CellStore, run_cell
from veracausa.experiments.discovery_grid import row_cells
from veracausa.experiments.experiment import AttackSpec, TrainingExperiment, load_experiment
from veracausa.experiments.schedule import CellProgress, CellWorkers, run_cells, until
from veracausa.experiments.sweep import settings_of
from veracausa.experiments.times import TimesCell
from veracausa.experiments.training_cell import TRAINING, TrainingCell, job_settings
from veracausa.experiments.training_experiment import training_places
from veracausa.experiments.trial import Attackers, plan_trial


def test_a_cell_is_known_by_its_settings_and_nothing_else(toy: TrainingExperiment):
    first = next(training_places(toy, toy.show)).cells[TRAINING]
    renamed = TrainingCell(first.job.model_copy(update={"name": "other"}))
    assert renamed.key == first.key
    assert TrainingCell(first.job.model_copy(update={"seed": 7})).key != first.key
    reading = next(training_places(toy, toy.show)).cells["unsplit"]
    assert reading.key != first.key
    assert reading.needs == first
    more = replace(reading, attack=replace(reading.attack, victims=3))
    assert more.key != reading.key


def test_an_attack_that_remembers_has_a_transcript_and_the_training_is_known_as_before(
    toy: TrainingExperiment, tmp_path: Path
) -> None:
    small = AttackSpec(auxiliary=16, victims=16, settings={"epochs": 2, "channels": 4, "blocks": 1})
    columns = {"columns": ("known_rows.leakage",), "attacks": {"known_rows": small}}
    place = next(training_places(toy.model_copy(update=columns), toy.show))
    training, reading = place.cells[TRAINING], place.cells["known_rows"]
    forgetful = next(training_places(toy, toy.show)).cells[TRAINING]
    assert isinstance(training, TrainingCell)
    assert isinstance(forgetful, TrainingCell)
    assert (training.job.transcript.record, forgetful.job.transcript.record) == (True, False)
    assert training.key == forgetful.key
    store = CellStore(tmp_path)
    run_cell(forgetful, store)
    assert training.trained(store) is None, "what crossed was not kept"
    run_cell(reading, store)
    assert training.trained(store) is not None
    found = reading.result(store)
    assert found is not None
    assert found["notes"]["known_rows"] > 0


BLIND = {"protocol": "blind"}


def test_cells_of_before_are_found_again() -> None:
    """The keys that cells were kept under by earlier versions, one of each kind."""
    table = load_experiment("causshield/table2", "small")
    place = next(p for p in training_places(table, ["cifar10"]) if p.row == "causshield")
    assert {name: cell.key for name, cell in place.cells.items()} == {
        "training": "c2e32a4a0cda6145a348",
        "urvfl": "4cede9408252379b3b37",
        "inverse": "0573a15b4e32eb2b866c",
    }
    graphs = load_experiment("vfedcd/table1", "small")
    rows = {"vfedcd": "ebc081ee6fdbee8eb315", "notears_mlp": "0b6bf7eee7f2d552bb90", "sdcd": "61c9bb49b87aadd4dd1f"}
    assert {row: row_cells(graphs, "d15", row)[0].key for row in rows} == rows
    audited = row_cells(load_experiment("vfedcd/table7", "small"), "d30", "parts")[0]
    assert audited.key == "af9044e6d8acaed49f90"
    job = load_job({"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}})
    trials = {"prune": "771759b4e5db", "laplace": "e62126bdeb16", "none": "edc7cbf67e4a"}
    planned = {name: plan_trial(settings_of(name, job, (3,))[0], 0, job, Attackers()).key for name in trials}
    assert planned == trials
    assert "blind" in job_settings(job.model_copy(update={"training": job.training.model_copy(update=BLIND)}))
    times = TimesCell(load_experiment("causshield/fig14", "small").bench, {"device": "cpu", "cpu": "toy"})
    assert times.key == "cbe7fc5927bf5d3f5714"


def ran(monkeypatch: pytest.MonkeyPatch, fail: dict[str, Exception] | None = None) -> list[Cell]:
    """Replace the work of a cell by a note of it."""
    order: list[Cell] = []

    def run(cell: Cell, store: CellStore, observer: object = None) -> float:
        order.append(cell)
        name = cell.job.defense.name
        if fail and name in fail:
            raise fail[name]
        store.keep(cell, {"scores": {}})
        return 0.0

    monkeypatch.setattr(schedule, "run_cell", run)
    return order


def silent(cell: Cell, seconds: float, progress: CellProgress) -> None:
    pass


def test_finished_cells_are_skipped_and_a_training_comes_before_its_readers(toy, store, monkeypatch):
    order = ran(monkeypatch)
    wanted = [cell for point in training_places(toy, toy.show) for cell in reversed(point.cells.values())]
    store.keep(wanted[-1], {"scores": {}})
    progress = run_cells(wanted, store, CellWorkers(1), until(None), silent)
    assert (progress.total, progress.finished, progress.stopped) == (8, 8, False)
    assert wanted[-1] not in order
    assert len(order) == 7
    assert run_cells(wanted, store, CellWorkers(1), until(None), silent).finished == 8
    assert len(order) == 7


def test_time_is_up_between_cells_and_the_rest_is_left(toy, store, monkeypatch):
    order = ran(monkeypatch)
    wanted = [cell for point in training_places(toy, toy.show) for cell in point.cells.values()]
    progress = run_cells(wanted, store, CellWorkers(1), until(time.monotonic() - 1), silent)
    assert progress.stopped
    assert order == []
    assert run_cells(wanted, store, CellWorkers(1), until(None), silent).finished == len(wanted)


@pytest.mark.parametrize(
    ("error", "said"), [(RunError("it diverged"), "it diverged"), (KeyError("share"), "KeyError: 'share'")], ids=str
)
def test_one_failure_does_not_take_the_others_along_and_its_readers_are_not_tried(toy, store, monkeypatch, error, said):
    order = ran(monkeypatch, {"laplace": error})
    wanted = [cell for point in training_places(toy, toy.show) for cell in point.cells.values()]
    progress = run_cells(wanted, store, CellWorkers(1), until(None), silent)
    assert progress.finished == 4
    assert set(progress.failed.values()) == {said}
    assert len(progress.failed) == 4
    assert len(order) == 6


def test_a_defense_that_does_not_fit_is_a_note_but_missing_data_end_it(toy, store, monkeypatch):
    wanted = [cell for point in training_places(toy, toy.show) for cell in point.cells.values()]
    ran(monkeypatch, {"laplace": InputError("it needs colour")})
    progress = run_cells(wanted, store, CellWorkers(1), until(None), silent)
    assert (len(progress.unfit), progress.failed) == (4, {})
    ran(monkeypatch, {"none": InputError("no data")})
    with pytest.raises(InputError, match="no data"):
        run_cells(wanted, CellStore(store.root / "other"), CellWorkers(1), until(None), silent)


def test_a_killed_training_is_resumed_and_a_torn_folder_is_begun_anew(toy, store, monkeypatch):
    begun: list[bool] = []

    def train(job, path, resume, observer):
        begun.append(resume)
        raise RunError("killed")

    monkeypatch.setattr("veracausa.training.train.train", train)
    cell = next(training_places(toy, toy.show)).cells[TRAINING]
    store.work(cell).mkdir(parents=True)
    (store.work(cell) / ".config.toml.1.tmp").write_text("half")
    with pytest.raises(RunError):
        run_cell(cell, store)
    store.work(cell).mkdir(parents=True)
    (store.work(cell) / "config.toml").write_text(cell.job.to_toml())
    with pytest.raises(RunError):
        run_cell(cell, store)
    assert begun == [False, True]
    assert cell.result(store) is None


def test_a_result_says_what_it_was_asked(toy, store):
    cell = next(training_places(toy, toy.show)).cells["unsplit"]
    store.keep(cell, {"scores": {}})
    kept = json.loads((store.root / "results" / f"{cell.key}.json").read_text())
    assert kept["settings"]["reading"]["name"] == "unsplit"
    assert kept["settings"]["job"]["data"]["name"] == "digits"
