"""A comparison shows each run once, and of the settings only those that differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from veracausa.errors import InputError
from veracausa.report.compare import compare, differences, write_comparison

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / name)) for name in ("first", "second")]
    config = runs[1] / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.001", "lr = 0.01").replace("cut = 6", "cut = 3"))
    return runs


def test_one_row_a_run(two_runs: list[Path]) -> None:
    first, second = compare(two_runs)
    assert (first["name"], first["cut"], second["cut"]) == ("first", 6, 3)
    assert first["defense"] == "laplace, none"
    assert first["test"]["accuracy"] == pytest.approx(0.962, abs=1e-3)
    assert first["bytes_sent"] == second["bytes_sent"] > 0


def test_only_settings_that_differ_are_shown(two_runs: list[Path], tmp_path: Path) -> None:
    text = write_comparison(two_runs, tmp_path / "out" / "comparison.html").read_text(encoding="utf-8")
    assert "training.optimizer.lr" in text
    assert "model.cut" in text
    assert "batch_size" not in text
    assert "2 runs compared" in text


def test_a_setting_that_one_job_lacks_differs() -> None:
    assert differences([{"a": {"b": 1}, "c": 2}, {"c": 2}]) == {"a.b": [1, None]}


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / parent / "same")) for parent in ("a", "b")]
    assert len({row["name"] for row in compare(runs)}) == 2


def test_names_are_escaped(tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / name)) for name in ("<b>x", "y")]
    assert "<b>x" not in write_comparison(runs, tmp_path / "c.html").read_text(encoding="utf-8")


def test_one_run_is_no_comparison(two_runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least two"):
        write_comparison([two_runs[0], two_runs[0]], tmp_path / "c.html")


def test_runs_that_tie_are_both_named(two_runs: list[Path], tmp_path: Path) -> None:
    text = write_comparison(two_runs, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "highest test accuracy 96.2 %, by first and second." in text


def test_no_run_is_best_across_different_data(two_runs: list[Path], tmp_path: Path) -> None:
    summary = two_runs[1] / "summary.json"
    summary.write_text(summary.read_text(encoding="utf-8").replace('"data": "digits"', '"data": "mnist"'))
    text = write_comparison(two_runs, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<h1>2 runs compared.</h1>" in text
