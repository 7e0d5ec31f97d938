"""On a GPU: the federation is still the joint graph, replayed from a CUDA graph or not, in either precision."""

from __future__ import annotations

import pytest
import torch
from trainings import TrainedSteps, image_data, job_for

from veracausa.config import load_job
from veracausa.runs.store import deserialize_state
from veracausa.training.baselines import joint
from veracausa.training.split.program import Schema
from veracausa.wire.launch import Launch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture(autouse=True)
def plain_float32(monkeypatch):
    """No TF32 and no choice of algorithm by the clock: both sides round alike."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("model", [{"name": "convnet", "cut": 6}, {"name": "resnet18", "cut": 6, "width": 16}])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_federation_on_a_gpu_is_the_joint_graph(graphs, model, precision, tmp_path):
    data = image_data(2, rows=76)
    job = job_for(data, model, batch_size=16, optimizer={"name": "sgd", "lr": 0.01})
    last = str(precision == "bf16").lower()
    settings = ["device=cuda", f"precision={precision}", f"cuda_graphs={str(graphs).lower()}", f"channels_last={last}"]
    job = load_job(job, [f"runtime.{setting}" for setting in settings])
    names = [*data.passive, data.active]
    programs = {n: TrainedSteps(n, [(job, data.parties[n], Schema.of(data))], tmp_path) for n in names}
    Launch("threads", 60, device="cuda").run(programs)
    reference = joint(job, data)
    reference.train()
    top = deserialize_state((tmp_path / "0-active").read_bytes())["top"]
    # Kernels sum in an order of their own choosing, and bf16 keeps eight bits.
    tolerance = 2e-2 if precision == "bf16" else 1e-3
    for key, value in reference.model.top.state_dict().items():
        torch.testing.assert_close(top[key], value.cpu(), rtol=tolerance, atol=tolerance)
    assert reference.step == 5


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_layers_of_a_defense_and_adapters_run_on_a_gpu(graphs, precision, tmp_path, monkeypatch):
    """Without noise, two passes from a CUDA graph or not give the weights that the CPU gives."""
    monkeypatch.setenv("VERACAUSA_CACHE", str(tmp_path))
    data = image_data(2, rows=76)
    defense = {"name": "noisy_bottleneck", "noise": 0.0, "decomposition": 0.1, "surrogate": {"name": "none"}}
    plain = job_for(data, {"name": "convnet", "cut": 6}, batch_size=16, optimizer={"name": "sgd", "lr": 0.01})
    plain = load_job(plain.model_dump(mode="json", exclude_none=True) | {"defense": defense})
    found = {}
    for device in ("cuda", "cpu"):
        settings = [f"device={device}", f"precision={precision}", f"cuda_graphs={str(graphs).lower()}"]
        job = load_job(plain, [f"runtime.{setting}" for setting in settings])
        names = [*data.passive, data.active]
        (tmp_path / device).mkdir()
        programs = {n: TrainedSteps(n, [(job, data.parties[n], Schema.of(data))], tmp_path / device) for n in names}
        Launch("threads", 60, device=device).run(programs)
        states = {n: deserialize_state((tmp_path / device / f"0-{n}").read_bytes()) for n in names}
        found[device] = {**states["active"]["adapters"], "bottom": states["passive_1"]["bottom"]}
    tolerance = 2e-2 if precision == "bf16" else 1e-3
    for part, weights in found["cpu"].items():
        for key, value in weights.items():
            if value.is_floating_point() and "running" not in key:
                torch.testing.assert_close(found["cuda"][part][key], value, rtol=tolerance, atol=tolerance)
