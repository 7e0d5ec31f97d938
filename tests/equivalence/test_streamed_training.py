"""Blind training gives the same model whether its tables are streamed or in memory, and whoever works on blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import veracausa
from veracausa.data import blocks

ROWS = 3000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file a party: numbers, words, gaps, in one order."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 6))
    words = np.array(["red", "green", "blue"])[rng.integers(0, 3, ROWS)]
    score = np.sin(2 * x[:, 0]) + x[:, 2] - 0.7 * x[:, 4] + (words == "red")
    ids = pl.Series("id", [f"p{k}" for k in rng.permutation(ROWS)])
    labels = np.where(score + 0.5 * rng.normal(size=ROWS) > 0.3, "yes", "no")
    own = {
        "active": {"id": ids, "a": x[:, 0], "b": x[:, 1], "y": labels},
        "passive_1": {"id": ids, "c": x[:, 2], "d": [None if k % 7 == 0 else v for k, v in enumerate(x[:, 3])]},
        "passive_2": {"id": ids, "e": x[:, 4], "word": words},
    }
    found = {}
    for party, columns in own.items():
        found[party] = folder / f"{party}.{'csv' if party == 'passive_1' else 'parquet'}"
        frame = pl.DataFrame(columns)
        (frame.write_csv if party == "passive_1" else frame.write_parquet)(found[party])
    return found


def trained(files: dict[str, Path], out: Path, stream: bool, **runtime: Any) -> veracausa.Run:
    job = {
        "data": {"name": "csv", "label": "y", "id": "id", "validation": 0.1, "stream": stream},
        "partition": {"active_has_features": True},
        "party": {party: {"data": {"path": str(path)}} for party, path in files.items()},
        "training": {"protocol": "blind"},
        "blind": {"encryption": "none", "block_rows": 256},
        # Of the maps that learn from labels none streams, so `auto` would take two different ones.
        "features": {"name": "splines"},
        "runtime": {"device": "cpu", "cpu_threads": 1, **runtime},
    }
    return veracausa.train(job, out=out)


@pytest.fixture(scope="module")
def in_memory(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> veracausa.Run:
    return trained(files, tmp_path_factory.mktemp("runs") / "memory", stream=False)


def assert_same(one: veracausa.Run, other: veracausa.Run) -> None:
    for split in ("validation", "test"):
        for name, value in one.summary[split].items():
            # Means of streamed columns differ in the last of 16 digits, and scores are rounded to 0.01.
            assert value == pytest.approx(other.summary[split][name], abs=2e-3), (split, name)
    told = [run.summary["blind_training"] for run in (one, other)]
    assert told[0]["rows"] == told[1]["rows"]
    assert told[0]["ridge"] == pytest.approx(told[1]["ridge"], rel=1e-3)


@pytest.mark.parametrize(
    "runtime", [{}, pytest.param({"link": "processes"}, marks=pytest.mark.slow)], ids=["threads", "processes"]
)
def test_streamed_training_is_training_in_memory(
    files: dict[str, Path],
    in_memory: veracausa.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runtime: dict[str, Any],
) -> None:
    monkeypatch.setattr(blocks, "PIECE_ROWS", 300)
    streamed = trained(files, tmp_path / "run", stream=True, **runtime)
    assert streamed.summary["test"]["auc"] > 0.85
    assert_same(streamed, in_memory)
    own, theirs = streamed.predict(), in_memory.predict()
    assert own.ids == theirs.ids
    assert own.scores["auc"] == pytest.approx(theirs.scores["auc"], abs=2e-3)
    new, known = streamed.predict(dict(files)), in_memory.predict(dict(files))
    assert new.ids == known.ids
    assert np.abs(new.outputs.numpy() - known.outputs.numpy()).max() < 0.02
    assert new.scores["auc"] == pytest.approx(known.scores["auc"], abs=2e-3)
    ledger = (tmp_path / "run" / "parties" / "passive_1" / "ledger.jsonl").read_text()
    assert "representation" not in ledger


@pytest.mark.slow
def test_processes_work_on_blocks(files: dict[str, Path], in_memory: veracausa.Run, tmp_path: Path) -> None:
    engine = {"engine": "processes", "workers": 1}
    whole = trained(files, tmp_path / "threads", stream=False, **engine)
    assert whole.summary["test"] == in_memory.summary["test"]
    apart = trained(files, tmp_path / "processes", stream=True, link="processes", **engine)
    assert_same(apart, in_memory)
