"""The noisy bottleneck inside a federation: any data, link and overlap, resumed as if nothing had happened."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from trainings import assert_resumed, image_data, job_for, table_data, train_all

import veracausa
from veracausa.audit.victim import Victim
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.data.overlap import restrict
from veracausa.runs.store import same
from veracausa.training.split.program import Schema

CONVNET = {"name": "convnet", "cut": 6}
JOB = {
    "data": {"name": "digits", "train": 96},
    "model": CONVNET,
    "training": {"epochs": 3, "batch_size": 32, "evaluate_every": 3},
    "checkpoints": {"every_steps": 1, "keep": 99},
    "risk": {"samples": 4, "rank": 4},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "defense": {
        "name": "noisy_bottleneck",
        "noise_mode": "accounted",
        "decomposition": 0.1,
        "channels": 4,
        "exchanges": 3,
    },
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("VERACAUSA_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VERACAUSA_CACHE", str(tmp_path_factory.mktemp("cache")))
        return veracausa.train(JOB, out=tmp_path_factory.mktemp("bottleneck") / "run")


def narrowed(job, **settings):
    defense = {"name": "noisy_bottleneck", "channels": 3, **settings}
    return load_job(job.model_dump(mode="json", exclude_none=True) | {"defense": defense})


def lacking(data):
    """The second party lacks some rows."""
    parties = dict(data.parties)
    held = restrict(parties["passive_2"].train, torch.arange(3, 24))
    return replace(data, parties={**parties, "passive_2": replace(parties["passive_2"], train=held)})


@pytest.mark.parametrize("mode", ["fresh", "fixed", "accounted"])
def test_every_mode_with_local_steps_and_missing_rows(tmp_path, mode):
    jobs = []
    for data, model in (
        (lacking(image_data(2)), CONVNET),
        (table_data(3), {"name": "mlp", "cut": 2, "hidden": [8, 8]}),
    ):
        jobs.append((narrowed(job_for(data, model, epochs=2, local_steps=2), noise_mode=mode), data))
    for states in train_all(jobs, "threads", tmp_path):
        assert set(states["active"]["adapters"]) >= {"passive_1", "passive_2"}
        if mode == "accounted":  # twice each: once an epoch, what was computed in local steps never left the party
            assert states["passive_1"]["defense"]["asked"].tolist() == [2] * 24


def test_in_bf16_it_trains(tmp_path):
    data = image_data(2)
    job = narrowed(job_for(data, CONVNET))
    job = job.model_copy(
        update={"runtime": job.runtime.model_copy(update={"precision": "bf16", "channels_last": True})}
    )
    (states,) = train_all([(job, data)], "threads", tmp_path)
    weights = states["active"]["adapters"]["passive_1"].values()
    assert all(weight.isfinite().all() and weight.dtype == torch.float32 for weight in weights)


def test_a_resumed_run_is_the_undisturbed_one(tmp_path, trained):
    assert_resumed(trained, JOB, tmp_path / "broken", 4)


def test_predictions_are_those_of_the_last_evaluation(trained):
    """The same noise, the same adapters: asking again gains nothing."""
    assert trained.predict().scores["accuracy"] == pytest.approx(trained.summary["accuracy"])


def test_its_diagnostics_and_risk_are_in_the_metrics(trained):
    lines = [line for line in trained.metrics if line["event"] == "defense" and line["party"] == "passive_1"]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["diagnostics"]["noise_deviation"] == pytest.approx(3**0.5, rel=0.2)  # √3, of 256 values
        assert line["diagnostics"]["capacity_bits"] > 0
        assert 0 <= line["risk"]["invre"] <= 1
    assert lines[-1]["diagnostics"]["spent"] == 1.0


def test_an_attacker_learns_with_noise_of_its_own_and_reads_what_was_sent(trained):
    """Redrawn for rows it learns from; for victims drawn anew only where every exchange did so."""
    data, rng = load(trained.job), torch.Generator().manual_seed(0)
    victim = Victim(trained, data.parties["passive_1"], Schema.of(data))
    some = torch.arange(8)
    assert victim.random
    assert victim.fresh_bottom(rng)(victim.rows("train", some)).shape[1:] == victim.payload_shape == (4, 2, 1)
    victim.party.defense.options = victim.party.defense.options.model_copy(update={"noise_mode": "fixed"})
    fixed = Victim(trained, data.parties["passive_1"], Schema.of(data))
    fixed.party.defense.options = victim.party.defense.options
    assert not fixed.random
    assert fixed.noisy
    sent = [fixed.payloads("train", some, 1, rng) for _ in range(2)]
    learnt = [fixed.payloads("train", some, 1, rng, redrawn=True) for _ in range(2)]
    assert torch.equal(*sent)
    assert not torch.equal(*learnt)


@pytest.mark.slow
def test_threads_and_processes_send_the_same_bits(tmp_path):
    data = lacking(image_data(2))
    job = narrowed(job_for(data, CONVNET, epochs=2, local_steps=2), decomposition=0.1, surrogate={"name": "jitter"})
    states = {}
    for link in ("threads", "processes"):
        (tmp_path / link).mkdir()
        (states[link],) = train_all([(job, data)], link, tmp_path / link)
    for state in states.values():
        state["active"].pop("seconds")
    assert same(states["threads"], states["processes"])
