"""A table that is made again where its cells are not: it keeps the rows that it had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli_w

from veracausa.experiments.cell import CellStore
from veracausa.experiments.discovery_experiment import DiscoveryReproduction
from veracausa.experiments.discovery_grid import row_cells
from veracausa.experiments.earlier import EarlierResults
from veracausa.experiments.experiment import DiscoveryExperiment, load_experiment
from veracausa.experiments.page import write_results
from veracausa.experiments.reproduce import reproduce_all
from veracausa.experiments.schedule import CellProgress

TREE = {
    "item": "Table 0",
    "title": "a toy",
    "columns": ["shd", "f1"],
    "show": ["toy"],
    "rows": ["ours", "slow"],
    "graphs": [7, 8],
    "seeds": [0, 1],
    "time_limit": 3,
    "panels": {"toy": {"label": "Toy", "data": {"name": "synthetic", "attributes": 4, "edges": 3, "rows": 60}}},
    "methods": {
        "ours": {"label": "VFedCD", "name": "vfedcd", "settings": {"epochs": 1, "refit_epochs": 1}},
        "slow": {"label": "NO-TEARS", "name": "notears", "seeds": 1},
        "empty": {"label": "empty graph", "name": "empty"},
    },
    "scales": {"smoke": {}},
}


def toy_file(folder: Path, **change: object) -> str:
    path = folder / "toy.toml"
    path.write_text(tomli_w.dumps({**TREE, **change}))
    return str(path)


def toy(folder: Path, **change: object) -> DiscoveryExperiment:
    experiment = load_experiment(toy_file(folder, **change), "smoke")
    assert isinstance(experiment, DiscoveryExperiment)
    return experiment


def measured_elsewhere(folder: Path, experiment: DiscoveryExperiment) -> DiscoveryReproduction:
    """The experiment, gathered and written by a machine whose cells this one does not have."""
    store = CellStore(folder / "cells")
    for number, each in enumerate(row_cells(experiment, "toy", "slow")):
        scores = {"shd": 2.0 + 2 * number, "f1": 0.5}
        run = {"graph": each.graphs[0], "seed": 0, "seconds": 1.0, "limited": not number, "scores": scores, "edges": []}
        store.keep(each, {"runs": [run], "notes": [], "sortability": [], "environment": {"cpu": "elsewhere"}})
    found = DiscoveryReproduction.begin(experiment, folder / "out")
    found.progress = CellProgress(0).of(found.cells, store)
    found.gather(store, {})
    write_results(found, store)
    return found


def test_a_row_that_no_cell_here_has_is_kept_from_the_table_that_is_there(tmp_path: Path):
    before = measured_elsewhere(tmp_path, toy(tmp_path))
    (again,) = reproduce_all([toy_file(tmp_path)], "smoke", tmp_path / "out", cells=tmp_path / "none", until=0.0)
    (was,), (texts,) = before.texts, again.texts
    assert texts.body[1] == ["NO-TEARS ‡ §", *was.body[1][1:]]
    assert again.tables[0].lines[1].values == before.tables[0].lines[1].values
    assert texts.body[0][-1] == "0 of 4"
    assert any(note.startswith("§: of an earlier run") for note in again.footnotes())
    assert (again.progress.finished, again.progress.total) == (2, 4)
    assert json.loads((tmp_path / "out/environment.json").read_text()) == [{"cpu": "elsewhere"}]


@pytest.mark.parametrize("change", [{"time_limit": 4}, {"graphs": [7, 9]}])
def test_a_row_of_other_settings_is_not_kept(tmp_path: Path, change: dict):
    measured_elsewhere(tmp_path, toy(tmp_path))
    (again,) = reproduce_all(
        [toy_file(tmp_path, **change)], "smoke", tmp_path / "out", cells=tmp_path / "none", until=0.0
    )
    assert again.texts[0].body[1][-1] == "0 of 2"


def test_a_table_without_the_names_of_its_cells_is_known_by_its_settings(tmp_path: Path):
    measured_elsewhere(tmp_path, toy(tmp_path))
    (tmp_path / "out/cells.json").unlink()
    slow = frozenset(each.key for each in row_cells(toy(tmp_path), "toy", "slow"))
    kept = EarlierResults.read(tmp_path / "out").line("toy", "slow", slow)
    assert kept is not None
    assert (kept.fits, kept.limited, kept.numbers["shd"][0]) == (2, 1, 3.0)
    assert EarlierResults.read(tmp_path / "out").line("toy", "slow", frozenset({"other"})) is None


@pytest.mark.parametrize("broken", ["table.csv", "cells.json", "experiment.toml"])
def test_a_folder_that_cannot_be_read_keeps_nothing(tmp_path: Path, broken: str):
    measured_elsewhere(tmp_path, toy(tmp_path))
    if broken == "experiment.toml":
        (tmp_path / "out/cells.json").unlink()
    (tmp_path / "out" / broken).write_text("nonsense,\x00")
    assert EarlierResults.read(tmp_path / "out").lines == {}
    assert EarlierResults.read(tmp_path / "nowhere").lines == {}
