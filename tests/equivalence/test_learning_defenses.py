"""Defenses that learn against an adversary or a dependence measure, in a federation: any model, link and overlap."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from trainings import JOB, image_data, job_for, table_data, train_all

import veracausa
from veracausa.config import load_job
from veracausa.data.overlap import restrict
from veracausa.runs.store import flatten, same

pytestmark = pytest.mark.slow

NAMES = ("nopeek", "disco", "ressfl")
QUICK = {"nopeek": {}, "disco": {"adversary": "weak"}, "ressfl": {"strength": 3.0, "threshold": 0.0, "lr": 1e-2}}
MODELS = {
    "convnet": {"name": "convnet", "cut": 6},
    "resnet": {"name": "resnet18", "cut": 6, "width": 4},
    "deep": {"name": "resnet18", "cut": 13, "width": 4},
    "own": {"name": "trainings:own_network", "cut": 4},
}
TABLE = {"name": "mlp", "cut": 2, "hidden": [8, 8]}


def defended(job, name, **changes):
    return load_job(
        job.model_dump(mode="json", exclude_none=True) | {"defense": {"name": name, **QUICK[name]}} | changes,
        allow_model=job.model.allowed,
    )


def lacking_some(data):
    """The second party holds so few rows that it gets batches of two, one and none."""
    parties = dict(data.parties)
    parties["passive_2"] = replace(
        parties["passive_2"], train=restrict(parties["passive_2"].train, torch.arange(0, 24, 6))
    )
    return replace(data, parties=parties)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", MODELS)
def test_any_model_and_any_cut(tmp_path, model, name):
    data = image_data(2)
    plain = job_for(data, MODELS[model], local_steps=2)
    undefended, states = train_all([(plain, data), (defended(plain, name), data)], "threads", tmp_path)
    for party in data.passive:
        assert not same(undefended[party]["bottom"], states[party]["bottom"])
        assert all(tensor.isfinite().all() for tensor in flatten(states[party])[0].values())


@pytest.mark.parametrize("name", NAMES)
def test_tables(tmp_path, name):
    data = table_data(2)
    plain = job_for(data, TABLE, epochs=10)  # until ResSFL's decoder beats the blind guess
    undefended, states = train_all([(plain, data), (defended(plain, name), data)], "threads", tmp_path)
    assert not same(undefended["passive_1"]["bottom"], states["passive_1"]["bottom"])


@pytest.mark.parametrize("missing", ["gwd", "zero_fill"])
@pytest.mark.parametrize("name", NAMES)
def test_threads_and_processes_send_the_same_bits_with_few_rows(tmp_path, name, missing):
    data = lacking_some(image_data(2))
    job = defended(job_for(data, MODELS["convnet"], epochs=2), name, overlap={"missing": missing, "fraction": 0.5})
    states = {}
    for link in ("threads", "processes") if missing == "gwd" else ("threads",):
        (tmp_path / link).mkdir()
        (states[link],) = train_all([(job, data)], link, tmp_path / link)
        states[link]["active"].pop("seconds")
    assert same(states["threads"], states.get("processes", states["threads"]))


@pytest.mark.parametrize("name", NAMES)
def test_half_precision(tmp_path, name):
    data = image_data(2)
    runtime = {"device": "cpu", "precision": "bf16", "channels_last": True}
    job = defended(job_for(data, MODELS["resnet"], local_steps=2), name, runtime=runtime)
    (states,) = train_all([(job, data)], "threads", tmp_path)
    tensors = flatten(states["passive_1"])[0]
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert not any(tensor.dtype == torch.bfloat16 for tensor in tensors.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_run_predicts_as_it_was_measured(tmp_path, name):
    run = veracausa.train({**JOB, "defense": {"name": name, **QUICK[name]}}, out=tmp_path / "run")
    assert run.predict().scores["accuracy"] == pytest.approx(run.summary["accuracy"])
