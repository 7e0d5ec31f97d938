"""MNIST across three parties is MNIST in one process, to the last bit of every weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import veracausa
from veracausa.config import load_job
from veracausa.data.files import data_folder
from veracausa.data.load import load
from veracausa.runs.store import deserialize_state
from veracausa.training.baselines import Centralised, joint

pytestmark = pytest.mark.skipif(
    not (data_folder() / "MNIST/raw/train-images-idx3-ubyte.gz").is_file(),
    reason="needs MNIST under VERACAUSA_DATA (MNIST/raw/*.gz)",
)

JOB: dict[str, Any] = {
    "data": {"name": "mnist"},
    "model": {"name": "convnet", "cut": 6},
    "training": {"batch_size": 128, "optimizer": {"name": "adam", "lr": 1e-3}},
    # One thread on both sides: how many add up a sum decides its last bits.
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


def in_one_process(job: dict[str, Any]) -> Centralised:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        settings = load_job(job)
        graph = joint(settings, load(settings))
        graph.train()
        graph.final = graph.scores()  # type: ignore[attr-defined]
    finally:
        torch.set_num_threads(before)
    return graph


def assert_equal(run: veracausa.Run, graph: Centralised) -> None:
    assert run.summary["test"] == graph.final  # type: ignore[attr-defined]
    model: Any = graph.model
    parts = {"passive_1": model.bottoms["passive_1"], "passive_2": model.bottoms["passive_2"], "active": model.top}
    for party, module in parts.items():
        saved = deserialize_state((run.path / f"parties/{party}/model.safetensors").read_bytes())
        weights = saved["top" if party == "active" else "bottom"]
        assert weights.keys() == module.state_dict().keys()
        for name, value in module.state_dict().items():
            assert torch.equal(weights[name], value), f"{party}: {name}"


def test_an_epoch_is_the_one_process_graph_to_the_last_bit(tmp_path):
    job = {**JOB, "data": {"name": "mnist", "train": 6000, "test": 2000}, "training": {**JOB["training"], "epochs": 1}}
    run = veracausa.train(job, tmp_path / "run")
    assert run.summary["rounds"] == 47
    assert_equal(run, in_one_process(job))
    assert run.summary["accuracy"] > 0.7  # it did learn; ten classes guess 0.1


@pytest.mark.slow
def test_the_whole_of_mnist(tmp_path):
    job = {**JOB, "training": {**JOB["training"], "epochs": 3}}
    run = veracausa.train(job, tmp_path / "run")
    assert run.summary["accuracy"] >= 0.97
    assert_equal(run, in_one_process(job))
