"""Cells are run once, shared, resumed and locked; what they add up to is what they found."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from veracausa.errors import InputError, RunError
from veracausa.experiments import cells as cells_module
from veracausa.experiments import schedule
from veracausa.experiments.cells import Cells
from veracausa.experiments.experiment import Experiment, resolve
from veracausa.experiments.page import footnotes
from veracausa.experiments.plan import Cell, points
from veracausa.experiments.schedule import CellWorkers, Progress, run_cells
from veracausa.experiments.table import body, cell_text, gather, head, records, works

TREE = {
    "item": "Table 0",
    "title": "a toy",
    "columns": ["accuracy", "unsplit.mse", "unsplit.leakage"],
    "show": ["digits"],
    "rows": ["laplace"],
    "job": {"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}},
    "panels": {"digits": {"label": "Digits"}},
    "defenses": {
        "none": {"label": "no defense", "defense": {"name": "none"}},
        "laplace": {"label": "Laplace noise", "defense": {"name": "laplace", "epsilon": 2.0}},
    },
    "attacks": {"unsplit": {}},
    "published": {"digits": {"laplace": {"unsplit.mse": [0.05, 0.01]}}},
    "scales": {"smoke": {"seeds": 2}},
}


@pytest.fixture
def toy() -> Experiment:
    return resolve(TREE, "toy", "smoke")


@pytest.fixture
def store(tmp_path: Path) -> Cells:
    return Cells(tmp_path)


def filled(toy: Experiment, store: Cells, leakage: float) -> list:
    """A grid whose cells all have results: seeds differ by 0.1."""
    grid = list(points(toy, toy.show))
    for point in grid:
        shift = 0.1 * point.seed + (0.2 if point.row == "laplace" else 0)
        store.keep(point.training, {"scores": {"accuracy": {"mean": 0.8 - shift}}, "notes": [], "curves": []})
        scores = {"mse": {"mean": 0.02 + shift, "spread": 0.01}, "leakage": {"mean": leakage}}
        store.keep(point.readings["unsplit"], {"scores": scores, "trivial": {"grey": 0.07}})
    return grid


def test_a_cell_is_known_by_its_settings_and_nothing_else(toy: Experiment):
    first = next(points(toy, toy.show)).training
    renamed = Cell(first.job.model_copy(update={"name": "other"}))
    assert renamed.key == first.key
    assert Cell(first.job.model_copy(update={"seed": 7})).key != first.key
    reading = next(points(toy, toy.show)).readings["unsplit"]
    assert reading.key != first.key
    assert reading.training == first
    more = replace(reading, reading=replace(reading.reading, victims=3))
    assert more.key != reading.key


def test_seeds_are_averaged_and_their_spread_is_not_that_of_images(toy: Experiment, store: Cells):
    (table,) = gather(toy, filled(toy, store, leakage=0.5), store, {})
    value = table.lines[1].values["unsplit.mse"]
    assert value.mean == pytest.approx(0.27)
    assert value.over_seeds == pytest.approx(0.0707, abs=1e-3)
    assert value.over_images == pytest.approx(0.01)
    assert (value.seeds, value.published, value.works) == (2, (0.05, 0.01), True)
    assert head(toy, table) == ["", "accuracy", "UnSplit MSE", "paper", "UnSplit leakage"]
    rows = list(body(toy, table))
    assert rows[1][:4] == ["Laplace noise", "55.0 ± 7.1 %", "0.2700 ± 0.0707", "0.0500 ± 0.0100"]
    assert rows[2] == ["no payload: grey", "", "0.0700", "", ""]
    record = next(r for r in records(toy, [table]) if r["row"] == "laplace" and r["column"] == "unsplit.mse")
    assert record["published"] == 0.05


def test_an_attack_that_fails_undefended_is_marked_and_explained(toy: Experiment, store: Cells):
    grid = filled(toy, store, leakage=0.0)
    (table,) = gather(toy, grid, store, {})
    assert cell_text("unsplit.mse", table.lines[1].values["unsplit.mse"]).endswith("†")
    assert table.lines[1].values["accuracy"].works is None
    assert any("not working here: UnSplit" in note for note in footnotes(toy, [table], Progress(1, 1)))
    assert works([point for point in grid if point.row == "none"], "unsplit", store) is False
    assert works([], "unsplit", store) is None


def test_what_is_missing_says_why(toy: Experiment, store: Cells):
    grid = list(points(toy, toy.show))
    reasons = {point.readings["unsplit"].key: "it does not fit" for point in grid}
    (table,) = gather(toy, grid, store, reasons)
    assert table.lines[0].values["unsplit.mse"].why_not == "it does not fit"
    assert table.lines[0].values["accuracy"].why_not == "not run yet"
    assert [text for row in body(toy, table) for text in row if text == "–"]


def test_a_row_with_fewer_seeds_than_asked_for_is_named(toy: Experiment, store: Cells):
    grid = filled(toy, store, leakage=0.5)
    (whole,) = gather(toy, grid, store, {})
    assert not [note for note in footnotes(toy, [whole], Progress(1, 1)) if "seeds are run" in note]
    late = next(point for point in grid if point.row == "laplace" and point.seed == 1)
    (store.root / "results" / f"{late.readings['unsplit'].key}.json").unlink()
    (table,) = gather(toy, grid, store, {})
    assert "Not all seeds are run: Laplace noise, 1 of 2." in footnotes(toy, [table], Progress(2, 1))


def test_substituted_data_leave_the_paper_out(store: Cells):
    other = resolve({**TREE, "substitute": "Something else."}, "toy", "smoke")
    (table,) = gather(other, filled(other, store, leakage=0.5), store, {})
    assert "paper" not in head(other, table)
    assert table.label == "Digits (stand-in data)"


def ran(monkeypatch: pytest.MonkeyPatch, fail: dict[str, Exception] | None = None) -> list[Cell]:
    """Replace the work of a cell by a note of it."""
    order: list[Cell] = []

    def run_cell(cell: Cell, cells: Cells) -> float:
        order.append(cell)
        name = cell.job.defense.name
        if fail and name in fail:
            raise fail[name]
        cells.keep(cell, {"scores": {}})
        return 0.0

    monkeypatch.setattr(schedule, "run_cell", run_cell)
    return order


def silent(cell: Cell, seconds: float, progress: Progress) -> None:
    pass


def test_finished_cells_are_skipped_and_a_training_comes_before_its_readers(toy, store, monkeypatch):
    order = ran(monkeypatch)
    wanted = [cell for point in points(toy, toy.show) for cell in reversed(point.cells)]
    store.keep(wanted[-1], {"scores": {}})
    progress = run_cells(wanted, store, CellWorkers(1), None, silent)
    assert (progress.total, progress.finished, progress.stopped) == (8, 8, False)
    assert wanted[-1] not in order
    assert len(order) == 7
    assert run_cells(wanted, store, CellWorkers(1), None, silent).finished == 8
    assert len(order) == 7


def test_time_is_up_between_cells_and_the_rest_is_left(toy, store, monkeypatch):
    order = ran(monkeypatch)
    wanted = [cell for point in points(toy, toy.show) for cell in point.cells]
    progress = run_cells(wanted, store, CellWorkers(1), time.monotonic() - 1, silent)
    assert progress.stopped
    assert order == []
    assert run_cells(wanted, store, CellWorkers(1), None, silent).finished == len(wanted)


@pytest.mark.parametrize(
    ("error", "said"), [(RunError("it diverged"), "it diverged"), (KeyError("share"), "KeyError: 'share'")], ids=str
)
def test_one_failure_does_not_take_the_others_along_and_its_readers_are_not_tried(toy, store, monkeypatch, error, said):
    order = ran(monkeypatch, {"laplace": error})
    wanted = [cell for point in points(toy, toy.show) for cell in point.cells]
    progress = run_cells(wanted, store, CellWorkers(1), None, silent)
    assert progress.finished == 4
    assert set(progress.failed.values()) == {said}
    assert len(progress.failed) == 4
    assert len(order) == 6


def test_a_defense_that_does_not_fit_is_a_note_but_missing_data_end_it(toy, store, monkeypatch):
    wanted = [cell for point in points(toy, toy.show) for cell in point.cells]
    ran(monkeypatch, {"laplace": InputError("it needs colour")})
    progress = run_cells(wanted, store, CellWorkers(1), None, silent)
    assert (len(progress.unfit), progress.failed) == (4, {})
    ran(monkeypatch, {"none": InputError("no data")})
    with pytest.raises(InputError, match="no data"):
        run_cells(wanted, Cells(store.root / "other"), CellWorkers(1), None, silent)


def test_a_killed_training_is_resumed_and_a_torn_folder_is_begun_anew(toy, store, monkeypatch):
    begun: list[bool] = []

    def train(job, path, resume):
        begun.append(resume)
        raise RunError("killed")

    monkeypatch.setattr("veracausa.training.train.train", train)
    cell = next(points(toy, toy.show)).training
    store.work(cell).mkdir(parents=True)
    (store.work(cell) / ".config.toml.1.tmp").write_text("half")
    with pytest.raises(RunError):
        cells_module.run_cell(cell, store)
    store.work(cell).mkdir(parents=True)
    (store.work(cell) / "config.toml").write_text(cell.job.to_toml())
    with pytest.raises(RunError):
        cells_module.run_cell(cell, store)
    assert begun == [False, True]
    assert not store.finished(cell)


def test_a_result_says_what_it_was_asked(toy, store):
    cell = next(points(toy, toy.show)).readings["unsplit"]
    store.keep(cell, {"scores": {}})
    kept = json.loads((store.root / "results" / f"{cell.key}.json").read_text())
    assert kept["settings"]["reading"]["name"] == "unsplit"
    assert kept["settings"]["job"]["data"]["name"] == "digits"
