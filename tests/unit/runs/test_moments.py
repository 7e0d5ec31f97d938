"""Models that a party keeps for good at certain moments of its training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import veracausa
from veracausa.config import Checkpoints
from veracausa.data.load import load
from veracausa.errors import RunError
from veracausa.runs.store import Store
from veracausa.training.checkpoints import restore_passive
from veracausa.training.split.program import Schema

JOB = {
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 2, "batch_size": 256},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "checkpoints": {"moments": [0.0, 0.5], "keep": 2},
}


def test_shares_are_steps_and_nothing_is_before_the_first_exchange() -> None:
    assert Checkpoints(moments=(0.0, 0.1, 0.5, 1.0)).moment_steps(40) == {1, 4, 20, 40}
    assert Checkpoints(moments=(0.0, 0.1)).moment_steps(4) == {1}
    assert Checkpoints().moment_steps(40) == set()


def test_moments_are_no_checkpoints_and_later_ones_are_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path, "a", keep=2)
    for step in (1, 5, 9):
        store.keep_moment(step, {"weight": torch.tensor([float(step)])})
        store.save(step, {})
    assert store.moment_steps() == [1, 5, 9]
    assert store.steps() == {5, 9}
    assert store.moment(5)["weight"].item() == 5
    store.forget_after(5)
    assert store.moment_steps() == [1, 5]
    with pytest.raises(RunError, match="no such moment"):
        store.moment(9)


def test_a_party_comes_back_as_it_was_then(tmp_path: Path) -> None:
    run = veracausa.train(JOB, tmp_path / "run")
    dataset = load(run.job)
    steps = Store(run.path, "passive_1").moment_steps()
    assert steps == [1, run.summary["rounds"] // 2]
    restored = [
        restore_passive(run, "passive_1", dataset.parties["passive_1"], Schema.of(dataset), step)
        for step in (*steps, None)
    ]
    weights = [next(iter(party.bottom.parameters())) for party in restored]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert Store(run.path, "active").moment_steps() == steps
