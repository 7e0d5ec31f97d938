"""How far a fit is, as its `status.json` says it while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from veracausa.runs import fit_status
from veracausa.runs.fit_status import FitStatus


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(fit_status.time, "monotonic", lambda: now[0])
    return now


def written(folder: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    return status


def test_it_says_the_share_the_epoch_and_the_time_that_is_left(tmp_path: Path, clock: list[float]) -> None:
    status = FitStatus(tmp_path)
    status.tell("graph", 0.0, 200)
    assert written(tmp_path)["seconds_left"] is None
    clock[0] += 10
    status.tell("graph", 0.25, 200)
    told = written(tmp_path)
    assert (told["state"], told["what"], told["share"], told["epoch"], told["epochs"]) == (
        "running", "graph", 0.25, 50, 200)  # fmt: skip
    assert told["seconds_left"] == 30.0


def test_a_resumed_fit_counts_from_where_it_went_on(tmp_path: Path, clock: list[float]) -> None:
    status = FitStatus(tmp_path)
    status.tell("graph", 0.8)
    clock[0] += 10
    status.tell("graph", 0.9)
    assert written(tmp_path)["seconds_left"] == pytest.approx(10.0)
    assert "epoch" not in written(tmp_path)


def test_it_writes_once_a_second_and_at_each_new_part_and_the_end(tmp_path: Path, clock: list[float]) -> None:
    status = FitStatus(tmp_path)
    seen = []
    for part, share in (("graph", 0.1), ("graph", 0.2), ("resamples", 0.0), ("resamples", 0.5), ("resamples", 1.0)):
        clock[0] += 0.3
        status.tell(part, share)
        seen.append((written(tmp_path)["what"], written(tmp_path)["share"]))
    assert seen == [("graph", 0.1), ("graph", 0.1), ("resamples", 0.0), ("resamples", 0.0), ("resamples", 1.0)]
    assert written(tmp_path)["seconds_left"] == 0.0
