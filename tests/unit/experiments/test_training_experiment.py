"""What a table of defenses says: means and spreads, whether its attacks work, what they are of, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toys import EXPERIMENT

from veracausa.audit.evaluation import AttackOutcome
from veracausa.audit.measure import measure
from veracausa.experiments.attack_cell import advantage_of, leaked
from veracausa.experiments.cell import CellStore
from veracausa.experiments.experiment import TrainingExperiment, load_experiment, resolve
from veracausa.experiments.grid import Place
from veracausa.experiments.schedule import CellProgress
from veracausa.experiments.table import PanelTable, records, table_text, value_text
from veracausa.experiments.training_cell import TRAINING, training_result
from veracausa.experiments.training_experiment import (
    Attacked,
    TrainingReproduction,
    attacked_text,
    training_places,
    works,
)


def gathered(
    toy: TrainingExperiment, grid: list[Place], store: CellStore, why_not: Mapping[str, str] = {}
) -> tuple[PanelTable, list[str]]:
    """The one table of a toy, and its footnotes."""
    found = TrainingReproduction(toy, store.root / "out", grid, CellProgress(1, 1))
    found.gather(store, why_not)
    return found.tables[0], found.footnotes()


def filled(toy: TrainingExperiment, store: CellStore, leakage: float) -> list:
    """A grid whose cells all have results: seeds differ by 0.1."""
    grid = list(training_places(toy, toy.show))
    for point in grid:
        shift = 0.1 * point.seed + (0.2 if point.row == "laplace" else 0)
        store.keep(point.cells[TRAINING], {"scores": {"accuracy": {"mean": 0.8 - shift}}, "notes": [], "curves": []})
        scores = {"mse": {"mean": 0.02 + shift, "spread": 0.01}, "leakage": {"mean": leakage}}
        store.keep(point.cells["unsplit"], {"scores": scores, "trivial": {"grey": 0.07}})
    return grid


def test_seeds_are_averaged_and_their_spread_is_not_that_of_images(toy: TrainingExperiment, store: CellStore):
    table, _notes = gathered(toy, filled(toy, store, leakage=0.5), store)
    value = table.lines[1].values["unsplit.mse"]
    assert value.mean == pytest.approx(0.27)
    assert value.spread == pytest.approx(0.0707, abs=1e-3)
    assert value.over_images == pytest.approx(0.01)
    assert (value.seeds, value.published, value.works) == (2, (0.05, 0.01), True)
    shown = table_text(table, toy.columns)
    assert shown.head == ["", "accuracy", "UnSplit MSE", "paper", "UnSplit leakage"]
    assert shown.body[1][:4] == ["Laplace noise", "55.0 ± 7.1 %", "0.2700 ± 0.0707", "0.0500 ± 0.0100"]
    assert shown.body[2] == ["no payload: grey", "", "0.0700", "", ""]
    record = next(r for r in records([table]) if r["row"] == "laplace" and r["column"] == "unsplit.mse")
    assert record["published"] == 0.05


def test_an_attack_that_fails_undefended_is_marked_and_explained(toy: TrainingExperiment, store: CellStore):
    grid = filled(toy, store, leakage=0.0)
    table, notes = gathered(toy, grid, store)
    assert value_text("unsplit.mse", table.lines[1].values["unsplit.mse"]).endswith("†")
    assert table.lines[1].values["accuracy"].works is None
    assert any("not working here: UnSplit" in note for note in notes)
    assert works([point for point in grid if point.row == "none"], "unsplit", store) is False
    assert works([], "unsplit", store) is None


def test_what_is_missing_says_why(toy: TrainingExperiment, store: CellStore):
    grid = list(training_places(toy, toy.show))
    reasons = {point.cells["unsplit"].key: "it does not fit" for point in grid}
    table, _notes = gathered(toy, grid, store, reasons)
    assert table.lines[0].values["unsplit.mse"].why_not == "it does not fit"
    assert table.lines[0].values["accuracy"].why_not == "not run yet"
    assert [text for row in table_text(table, toy.columns).body for text in row if text == "–"]


def test_a_row_with_fewer_seeds_than_asked_for_is_named(toy: TrainingExperiment, store: CellStore):
    grid = filled(toy, store, leakage=0.5)
    _, notes = gathered(toy, grid, store)
    assert not [note for note in notes if "seeds are run" in note]
    late = next(point for point in grid if point.row == "laplace" and point.seed == 1)
    (store.root / "results" / f"{late.cells['unsplit'].key}.json").unlink()
    _table, notes = gathered(toy, grid, store)
    assert "Not all seeds are run: Laplace noise, 1 of 2." in notes


def test_substituted_data_leave_the_paper_out(store: CellStore):
    other = resolve({**EXPERIMENT, "substitute": "Something else."}, "toy", "smoke")
    table, _notes = gathered(other, filled(other, store, leakage=0.5), store)
    assert "paper" not in table_text(table, other.columns).head
    assert table.label == "Digits (stand-in data)"


ATTACKED: dict[str, Any] = {
    "item": "Table 0",
    "title": "a toy",
    "columns": ["accuracy", "unsplit.leakage", "inverse.leakage"],
    "show": ["digits"],
    "rows": ["laplace"],
    "job": {"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}},
    "panels": {"digits": {"label": "Digits"}},
    "defenses": {
        "none": {"label": "no defense", "defense": {"name": "none"}},
        "laplace": {"label": "Laplace noise", "defense": {"name": "laplace", "epsilon": 2.0}},
    },
    "attacks": {"unsplit": {"parties": ["passive_2"]}, "inverse": {"snapshots": [0.0]}},
    "scales": {"smoke": {"seeds": 3}},
}


def kept(tmp_path: Path, of: dict[str, list[dict[str, Any]]]) -> tuple[Any, list[Any], CellStore]:
    """A grid where every attack found, seed by seed, the same with and without the defense."""
    toy, store = resolve(ATTACKED, "toy", "smoke"), CellStore(tmp_path)
    grid = list(training_places(toy, toy.show))
    for point in grid:
        store.keep(point.cells[TRAINING], {"scores": {"accuracy": {"mean": 0.8}}})
        for name, found in of.items():
            store.keep(point.cells[name], found[point.seed])
    return toy, grid, store


def found(share: float, error: float = 0.01, **more: Any) -> dict[str, Any]:
    told = {"share": share, "error": error, "rows": 250, "chances": 1}
    return {"scores": {"leakage": {"mean": max(0.0, share)}}, "advantage": told, **more}


WHOLE = {"coverage": "whole training", "parties": {"passive_1": {"train": {}, "moments": [{}]}}}


def test_an_attack_that_reads_something_in_one_seed_of_three_does_not_work(tmp_path: Path) -> None:
    lucky = [found(0.12), found(-0.2), found(-0.3)]  # 4.0 ± 6.9 %, once clipped
    toy, grid, store = kept(tmp_path, {"unsplit": lucky, "inverse": [found(0.9, **WHOLE)] * 3})
    undefended = [point for point in grid if point.row == "none"]
    assert works(undefended, "unsplit", store) is False
    assert works(undefended, "inverse", store) is True
    table, notes = gathered(toy, grid, store)
    assert table.lines[1].values["unsplit.leakage"].mean == pytest.approx(0.04)
    assert any(note.startswith("† not working here: UnSplit does") for note in notes)


def test_a_spread_over_rows_larger_than_the_margin_is_no_success(tmp_path: Path) -> None:
    _, grid, store = kept(tmp_path, {"unsplit": [found(0.05, 0.04)] * 3, "inverse": [found(0.05, 0.004)] * 3})
    assert works(grid[:3], "unsplit", store) is False
    assert works(grid[:3], "inverse", store) is True


def test_cells_of_before_are_read_and_called_the_last_model(tmp_path: Path) -> None:
    old = {
        "scores": {"leakage": {"mean": 0.6}, "mse": {"mean": 0.01}, "blind_mse": {"mean": 0.03}},
        "party": "passive_2",
    }
    toy, grid, store = kept(tmp_path, {"unsplit": [old] * 3, "inverse": [old] * 3})
    _table, notes = gathered(toy, grid, store)
    assert (
        "UnSplit: last model only, of passive_2; passive_1 was not attacked. What crossed earlier in the training "
        in (next(note for note in notes if note.startswith("UnSplit")))
    )
    assert any(note.startswith("oracle decoder: last model only, of passive_1 and passive_2.") for note in notes)
    worse = {"scores": {"leakage": {"mean": 0.02}, "mse": {"mean": 1.157}, "blind_mse": {"mean": 0.895}}}
    _, grid, store = kept(tmp_path / "worse", {"unsplit": [worse] * 3, "inverse": [old] * 3})
    assert works(grid[:3], "unsplit", store) is False


def test_the_whole_training_is_said_with_its_snapshots(tmp_path: Path) -> None:
    toy, grid, store = kept(tmp_path, {"unsplit": [found(0.1)] * 3, "inverse": [found(0.9, **WHOLE)] * 3})
    _table, notes = gathered(toy, grid, store)
    said = "oracle decoder: the most that is read over the whole training (the first exchange and the end) of passive_1"
    assert any(note.startswith(said) for note in notes)
    whole, last = (Attacked(coverage, ("a", "b"), (), 4) for coverage in ("whole training", "last model"))
    assert "4 snapshots from the first exchange to the end" in attacked_text("it", [whole])
    assert attacked_text("it", [whole, last]).startswith("it: last model only in some cells, of a and b.")
    at_once = Attacked("whole training", ("a",), ("b",), 1)  # known rows: all that crossed, in one reading
    assert attacked_text("it", [at_once]) == "it: reads the whole training at once, of a; b was not attacked."


def test_only_an_attack_over_the_training_is_known_by_its_snapshots() -> None:
    toy = resolve(ATTACKED, "toy", "smoke")
    readings = next(training_places(toy, toy.show)).cells
    assert "snapshots" not in readings["unsplit"].settings["reading"]
    assert readings["inverse"].settings["reading"]["snapshots"] == (0.0,)


def outcome(error: float, seed: int) -> AttackOutcome:
    """One set of pictures, read with about this error where the blind guess has 1/12."""
    truth = torch.rand(20, 1, 8, 4, generator=torch.Generator().manual_seed(seed))
    guess = truth + error**0.5 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(seed + 1))
    blind = {"mean image": torch.full_like(truth, 0.5)}
    positions = {"train": torch.arange(20)}
    return AttackOutcome(
        "bank", 1.0, positions, 9, {"train": measure(guess, truth, blind, pixels=True)}, None, 0.0, 1, {}
    )


def test_one_lucky_set_of_victims_is_no_leak() -> None:
    sets = [outcome(0.01, 1), outcome(0.2, 3), outcome(0.2, 5)]
    assert [one.leakage > 0 for one in sets] == [True, False, False]
    assert leaked(sets) == 0
    together = advantage_of(sets)
    assert together.share < 0
    assert together.rows == 60
    assert leaked(sets[:1]) == sets[0].leakage


def result(tmp_path: Path, risk: dict) -> dict:
    (tmp_path / "environment.json").write_text("{}")
    summary = {"test": {"accuracy": 0.9}, "parties": {"a": {"risk": risk}, "active": {}}}
    return training_result(SimpleNamespace(summary=summary, metrics=[], path=tmp_path))


def test_what_a_defense_says_of_itself_is_a_mean_of_parties(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{}")
    parties = {"a": {"diagnostics": {"drift": 0.2}}, "b": {"diagnostics": {"drift": 0.6, "cka": 1.0}}, "active": {}}
    run = SimpleNamespace(summary={"test": {}, "seconds": 3.0, "parties": parties}, metrics=[], path=tmp_path)
    scores = training_result(run)["scores"]
    assert scores == {"drift": {"mean": 0.4}, "training_seconds": {"mean": 3.0}}


@pytest.mark.parametrize(
    ("risk", "value"),
    [
        ({"invre": 0.9, "exact": 1.0}, 0.9),
        ({"invre": 0.01, "exact": 0.0, "k_capped": 1.0}, None),
        ({"invre": None, "unavailable": "it rounds."}, None),
    ],
)
def test_only_invre_in_all_directions_is_taken(risk, value, tmp_path):
    found = result(tmp_path, risk)
    assert found["scores"].get("invre", {}).get("mean") == value
    assert found["unavailable"] == ({"invre": "InvRE: it rounds"} if "unavailable" in risk else {})


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ({"scores": {"invre": {"mean": 0.01}}}, "a tenth of a row's directions"),
        ({"scores": {}, "unavailable": {"invre": "InvRE: it rounds"}}, "it rounds"),
    ],
)
def test_a_table_says_why_there_is_no_invre(kept, reason, tmp_path):
    experiment = load_experiment("causshield/fig1a", "smoke")
    places = list(training_places(experiment, experiment.show))
    store = CellStore(tmp_path)
    store.keep(places[0].cells[TRAINING], kept)
    table, _ = gathered(experiment, places, store)
    value = table.lines[0].values["invre"]
    assert value.mean is None
    assert reason in value.why_not


def test_a_panel_whose_data_turn_out_to_be_a_part_is_a_stand_in(toy: TrainingExperiment, store: CellStore):
    grid = filled(toy, store, leakage=0.5)
    whole, _notes = gathered(toy, grid, store)
    assert whole.lines[1].values["unsplit.mse"].published == (0.05, 0.01)
    for point in grid:
        kept = {"scores": {"accuracy": {"mean": 0.7}}, "curves": []}
        store.keep(point.cells[TRAINING], {**kept, "notes": ["digits: a subset (10 training rows)"]})
    part, _notes = gathered(toy, grid, store)
    assert part.label == "Digits (stand-in data)"
    assert part.substitute == "Data: digits: a subset (10 training rows)."
    assert part.lines[1].values["unsplit.mse"].published is None, "the paper's number is of other data"
