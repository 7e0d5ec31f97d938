"""A training that cannot start leaves nothing behind, and one that blows up ends with a sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import Names

import veracausa
from veracausa.errors import InputError, RunError
from veracausa.models.runner import choose_device
from veracausa.training.split.active import diverged

JOB: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 3, "batch_size": 256},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


def test_a_gpu_that_is_not_there_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="sees no GPU here"):
        veracausa.train({**JOB, "runtime": {"device": "cuda"}}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_gpu_beyond_the_last_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1").index == 1
    with pytest.raises(InputError, check=Names("runtime.device", "cuda:2", "2")):
        choose_device("cuda:2")


def test_a_training_that_explodes_ends_with_a_sentence(tmp_path: Path) -> None:
    """The loss stays finite here, so only its size tells."""
    exploding = {**JOB, "training": {**JOB["training"], "optimizer": {"name": "adam", "lr": 1e3}}}
    with pytest.raises(RunError, match=r"diverged: the loss is .* in epoch \d; lower training.optimizer.lr") as ended:
        veracausa.train(exploding, tmp_path / "run")
    assert ended.value.exit_code == 1
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["state"] == "failed"
    assert "diverged" in status["error"]
    assert not (tmp_path / "run/summary.json").exists()


@pytest.mark.parametrize(
    ("loss", "first", "expected"),
    [
        (0.1, 2.3, False),
        (200.0, 2.3, False),
        (300.0, 2.3, True),
        (150.0, 0.01, True),  # a first batch that happens to fit is no yardstick
        (1e9, 1e10, False),  # a target in large units
        (math.nan, 2.3, True),
        (math.inf, math.inf, True),
        (50.0, math.inf, False),  # a checkpoint of before does not know the first loss
    ],
)
def test_what_counts_as_blown_up(loss: float, first: float, expected: bool) -> None:
    assert diverged(loss, first) is expected
