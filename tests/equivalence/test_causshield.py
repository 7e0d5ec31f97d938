"""CausShield inside a federation: nothing at M = 0, a moved payload else, on any data, link and overlap."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from trainings import assert_resumed, image_data, job_for, table_data, train_all

import veracausa
from veracausa.config import load_job
from veracausa.data.overlap import restrict
from veracausa.defenses.causshield import CausShield
from veracausa.runs.store import same

MODELS = {
    "convnet": {"name": "convnet", "cut": 6},
    "resnet": {"name": "resnet18", "cut": 6, "width": 4},
    "own": {"name": "trainings:own_network", "cut": 4},
}
TABLE = {"name": "mlp", "cut": 2, "hidden": [8, 8]}
QUICK = {"name": "causshield", "profile": "paper_repaired", "iterations": 2, "surrogate": {"name": "permuted_ab"}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("VERACAUSA_CACHE", str(tmp_path_factory.mktemp("cache")))


def shielded(job, **settings):
    tree = job.model_dump(mode="json", exclude_none=True) | {"defense": {**QUICK, **settings}}
    return load_job(tree, allow_model=job.model.allowed)


@pytest.mark.parametrize(("model", "local_steps"), [("convnet", 1), ("resnet", 3), ("own", 2)])
def test_without_iterations_it_is_plain_training_to_the_last_bit(tmp_path, model, local_steps):
    data = image_data(2)
    plain = job_for(data, MODELS[model], local_steps=local_steps, epochs=2)
    undefended, defended = train_all([(plain, data), (shielded(plain, iterations=0), data)], "threads", tmp_path)
    for states in (undefended, defended):
        states["active"].pop("seconds")
    assert same(undefended, defended)


@pytest.mark.parametrize(("passive", "model"), [(1, "convnet"), (2, "own"), (3, "resnet")])
def test_any_number_of_parties_and_any_model(tmp_path, passive, model):
    data = image_data(passive)
    plain = job_for(data, MODELS[model])
    undefended, defended = train_all([(plain, data), (shielded(plain), data)], "threads", tmp_path)
    for name in data.passive:
        assert not same(undefended[name]["bottom"], defended[name]["bottom"])
        assert defended[name]["defense"]["seen"] == 24


def test_tables(tmp_path):
    data = table_data(2)
    job = shielded(job_for(data, TABLE), surrogate={"name": "auto"})
    (states,) = train_all([(job, data)], "threads", tmp_path)
    assert states["passive_1"]["defense"]["done"] == 2


SETTINGS = [
    {},
    {"transmit": "surrogate"},
    {"players": "alternating"},
    {"mask": "hard_topk"},
    {"update": "first_order"},
    {"update": "merge"},
    {"scope": "persistent"},
    {"scope": "epoch"},
    {"scope": "offset"},
    {"refresh": "epoch"},
    {"schedule": "plateau"},
]


def lacking_rows(settings):
    """A job with local steps, and its data, of which one party lacks rows."""
    data = image_data(2)
    parties = dict(data.parties)
    lacking = restrict(parties["passive_2"].train, torch.arange(3, 24))
    parties["passive_2"] = replace(parties["passive_2"], train=lacking)
    data = replace(data, parties=parties)
    return shielded(job_for(data, MODELS["resnet"], epochs=2, local_steps=2), **settings), data


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_variant_trains_where_a_party_lacks_rows(tmp_path, settings):
    (states,) = train_all([lacking_rows(settings)], "threads", tmp_path)
    assert states["passive_2"]["defense"]["seen"] == 42


def test_a_bottom_learns_on_its_own_rows_where_surrogates_are_sent():
    """Eq. 49: the gradient of a payload of surrogates goes through f(x), not through f of the surrogates."""
    x, slope = torch.rand(24, 3, 8, 6, generator=torch.Generator().manual_seed(1)), torch.randn(24, 8)
    gradients = {}
    for sent in ("raw", "surrogate"):
        bottom = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 8))
        torch.nn.init.constant_(bottom[1].weight, 0.01)
        shield = CausShield(transmit=sent, iterations=1, scope="batch", surrogate={"name": "permuted_ab"})
        shield.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), torch.Generator().manual_seed(0))
        shield.prepare(x)
        payload, context = shield.forward(x, torch.arange(24), 1)
        shield.backward(context, slope)
        gradients[sent] = (payload, bottom[1].weight.grad.clone())
    assert not torch.equal(gradients["raw"][0], gradients["surrogate"][0])
    torch.testing.assert_close(gradients["surrogate"][1], slope.T @ x.flatten(1))
    torch.testing.assert_close(gradients["raw"][1], gradients["surrogate"][1])


@pytest.mark.slow
def test_threads_and_processes_send_the_same_bits(tmp_path):
    """What a process adds does not depend on the variant."""
    states = {}
    for link in ("threads", "processes"):
        (tmp_path / link).mkdir()
        (states[link],) = train_all([lacking_rows({})], link, tmp_path / link)
    for state in states.values():
        state["active"].pop("seconds")
    assert same(states["threads"], states["processes"])


def test_correlations_use_all_rows_the_party_holds(tmp_path, monkeypatch):
    """At a small overlap the common rows alone would be too few: the others take part in the adaptation."""
    data = image_data(2)
    parties = dict(data.parties)
    parties["passive_2"] = replace(
        parties["passive_2"], train=restrict(parties["passive_2"].train, torch.arange(0, 24, 4))
    )
    data = replace(data, parties=parties)
    rows: list[int] = []
    forward = CausShield.forward
    monkeypatch.setattr(
        CausShield, "forward", lambda self, x, ids, step: rows.append(len(x)) or forward(self, x, ids, step)
    )
    train_all([(shielded(job_for(data, MODELS["convnet"])), data)], "threads", tmp_path)
    assert rows.count(8) >= 3  # the first party's whole batches, though the parties share few of their ids


JOB = {
    "data": {"name": "digits", "train": 96},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 3, "batch_size": 32, "evaluate_every": 3},
    "checkpoints": {"every_steps": 1, "keep": 99},
    "risk": {"samples": 4, "rank": 4},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "defense": {"name": "causshield", "profile": "paper_repaired", "iterations": 2, "surrogate": {"name": "fourier"}},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return veracausa.train(JOB, out=tmp_path_factory.mktemp("causshield") / "run")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scope": "offset"},
        pytest.param({"scope": "epoch"}, marks=pytest.mark.slow),
        pytest.param({"scope": "persistent"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_resumed_run_is_the_undisturbed_one(tmp_path, settings, trained):
    job = {**JOB, "defense": {**JOB["defense"], **settings}}
    whole = veracausa.train(job, out=tmp_path / "whole") if settings else trained
    assert_resumed(whole, job, tmp_path / "broken", 4)


def test_diagnostics_of_every_epoch_are_in_the_metrics(trained):
    lines = [line for line in trained.metrics if line["event"] == "defense" and line["party"] == "passive_1"]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    wanted = {
        *("drift", "cka", "correlation_diagonal", "correlation_off_diagonal", "effective_rank", "dead_dimensions"),
        *("mask_variance", "mask_always_up", "iterations", "generator_loss", "causal_error"),
    }
    for line in lines:
        assert wanted <= set(line["diagnostics"])
        assert line["diagnostics"]["drift"] > 0
        assert 0 <= line["risk"]["invre"] <= 1
    assert next(line for line in trained.metrics if line["event"] == "prepared")["gates"]


def test_predictions_of_a_saved_run_are_adapted_as_in_training(trained):
    assert trained.predict().scores["accuracy"] == pytest.approx(trained.summary["accuracy"])
