"""What a table's leakage is of: over the training and all parties, or the last model of one, which a footnote says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from veracausa.audit.evaluation import AttackOutcome
from veracausa.audit.measure import measure
from veracausa.experiments.attack_cell import advantage_of, leaked
from veracausa.experiments.attacked import Attacked, sentence
from veracausa.experiments.cells import Cells
from veracausa.experiments.experiment import resolve
from veracausa.experiments.page import footnotes
from veracausa.experiments.plan import points
from veracausa.experiments.schedule import Progress
from veracausa.experiments.table import gather, works

TREE: dict[str, Any] = {
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


def kept(tmp_path: Path, of: dict[str, list[dict[str, Any]]]) -> tuple[Any, list[Any], Cells]:
    """A grid where every attack found, seed by seed, the same with and without the defense."""
    toy, store = resolve(TREE, "toy", "smoke"), Cells(tmp_path)
    grid = list(points(toy, toy.show))
    for point in grid:
        store.keep(point.training, {"scores": {"accuracy": {"mean": 0.8}}})
        for name, found in of.items():
            store.keep(point.readings[name], found[point.seed])
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
    (table,) = gather(toy, grid, store, {})
    assert table.lines[1].values["unsplit.leakage"].mean == pytest.approx(0.04)
    assert any(note.startswith("† not working here: UnSplit does") for note in footnotes(toy, [table], Progress(1, 1)))


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
    (table,) = gather(toy, grid, store, {})
    notes = footnotes(toy, [table], Progress(1, 1))
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
    (table,) = gather(toy, grid, store, {})
    said = "oracle decoder: the most that is read over the whole training (the first exchange and the end) of passive_1"
    assert any(note.startswith(said) for note in footnotes(toy, [table], Progress(1, 1)))
    whole, last = (Attacked(coverage, ("a", "b"), (), 4) for coverage in ("whole training", "last model"))
    assert "4 snapshots from the first exchange to the end" in sentence("it", [whole])
    assert sentence("it", [whole, last]).startswith("it: last model only in some cells, of a and b.")


def test_only_an_attack_over_the_training_is_known_by_its_snapshots() -> None:
    toy = resolve(TREE, "toy", "smoke")
    readings = next(points(toy, toy.show)).readings
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
