"""What a federation is measured against: the joint graph is the federation, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from refusals import Names
from trainings import image_data, job_for, table_data

import veracausa
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.errors import InputError
from veracausa.events import Event
from veracausa.runs.store import deserialize_state
from veracausa.training.baselines import active_only, joint, prior, unsplit

JOB = {
    "seed": 5,
    "data": {"name": "digits", "train": 320, "test": 100},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 2, "batch_size": 64, "baselines": ["joint", "unsplit", "active_only"]},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return veracausa.train(JOB, tmp_path_factory.mktemp("baselines") / "run")


def test_the_joint_graph_scores_what_the_federation_scores(run):
    baselines = run.summary["baselines"]
    assert list(baselines) == ["joint", "unsplit", "active_only"]
    scored = {key: value for key, value in baselines["joint"].items() if key != "seconds"}
    assert scored == run.summary["test"]
    assert baselines["unsplit"]["loss"] != baselines["joint"]["loss"]


def test_a_baseline_says_how_far_it_is(tmp_path: Path) -> None:
    told: dict[str, list[float]] = {}

    def hear(event: Event) -> None:
        if event["event"] == "baseline":
            told.setdefault(event["name"], []).append(event["share"])

    veracausa.train(JOB, tmp_path / "run", observer=hear)
    assert list(told) == ["joint", "unsplit", "active_only"]
    for name in ("joint", "unsplit"):
        assert told[name] == sorted(set(told[name]))
        assert (told[name][0], told[name][-1]) == (0.0, 1.0)
        assert 2 < len(told[name]) <= 101


def test_the_joint_graph_has_the_weights_of_the_federation(run):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    graph = joint(load_job(JOB), load(load_job(JOB)))
    graph.train()
    torch.set_num_threads(before)
    models = {
        party: deserialize_state((run.path / f"parties/{party}/model.safetensors").read_bytes())
        for party in ("active", "passive_1", "passive_2")
    }
    for party in ("passive_1", "passive_2"):
        for key, value in graph.model.bottoms[party].state_dict().items():
            assert torch.equal(models[party]["bottom"][key], value)
    for key, value in graph.model.top.state_dict().items():
        assert torch.equal(models["active"]["top"][key], value)


def test_an_active_party_without_features_has_only_the_prior(run):
    data = load(load_job(JOB))
    assert active_only(load_job(JOB), data) is None
    labels = data.parties["active"].train.labels
    commonest = int(torch.bincount(labels).argmax())
    expected = float((data.parties["active"].test.labels == commonest).double().mean())
    assert run.summary["baselines"]["active_only"]["accuracy"] == expected
    assert run.summary["baselines"]["active_only"]["note"] == "no features: the labels' prior"


def test_an_active_party_with_features_trains_on_them_alone():
    job = load_job(JOB, ["partition.active_has_features=true", "partition.parts=[4, 2, 2]", "training.epochs=1"])
    data = load(job)
    alone = active_only(job, data)
    assert len(alone.holders) == 1
    assert tuple(alone.rows("train", torch.arange(3))[0].shape) == (3, *data.parties["active"].shape)
    alone.train()
    assert 0 < alone.scores()["accuracy"] <= 1
    assert alone.step == 5


def test_the_unsplit_model_sees_the_picture_whole():
    job = load_job(JOB)
    data = load(job)
    whole = unsplit(job, data)
    rows = whole.rows("train", torch.arange(2))
    seen = []
    whole.model.model.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    whole.model(rows)
    assert tuple(seen[0].shape) == (2, 1, 8, 8)
    assert torch.equal(seen[0], torch.cat(rows, dim=3))


def test_the_prior_of_numbers_is_their_mean():
    data = table_data(1, task="regression")
    active = data.parties["active"]
    object.__setattr__(active, "test", active.train)
    scores = prior(data)
    labels = active.train.labels
    assert scores["loss"] == pytest.approx(float(labels.var(correction=0)), rel=1e-5)
    assert scores["r2"] == pytest.approx(0, abs=1e-6)


def test_weighted_classes_reach_the_joint_graph():
    data = image_data(1)
    plain, weighted = (
        joint(job_for(data, {"name": "convnet", "cut": 6}, class_weights=weights), data)
        for weights in ("none", [1.0, 5.0, 0.1, 2.0])
    )
    assert float(plain.train_step()) != float(weighted.train_step())


def lacking(tmp_path, held, tests, baselines):
    """A job of an active party with 40 training rows and passive ones that hold some; the test rows are common."""
    rows = {"active": range(40), **held}
    party = {}
    for name, ids in rows.items():
        column = "y,u" if name == "active" else f"v{name}"
        for file, some in (("train", ids), ("test", tests)):
            lines = [f"{i},{i % 2},{i * i}" if name == "active" else f"{i},{i * 3}" for i in some]
            (tmp_path / f"{name}.{file}.csv").write_text("\n".join([f"id,{column}", *lines]) + "\n")
        paths = {"path": tmp_path / f"{name}.train.csv", "test_path": tmp_path / f"{name}.test.csv"}
        party[name] = {"data": paths}
    return {
        "data": {"name": "csv", "label": "y", "id": "id", "test_path": tmp_path / "active.test.csv"},
        "model": {"name": "mlp"},
        "parties": {"passive": list(held)},
        "partition": {"active_has_features": True},
        "party": party,
        "overlap": {"missing": "zero_fill"},
        "training": {"epochs": 2, "batch_size": 16, "baselines": baselines},
        "runtime": {"device": "cpu", "cpu_threads": 1},
    }


def test_where_somebody_lacks_rows_the_common_ones_are_the_table(tmp_path):
    everybody = ["active_only", "joint", "unsplit"]
    job = lacking(tmp_path, {"b": range(5, 40), "c": range(0, 38, 2)}, range(50, 56), everybody)
    run = veracausa.train(job, tmp_path / "run")
    found = run.summary["baselines"]
    assert list(found) == everybody
    assert "note" not in found["active_only"]
    for name in ("joint", "unsplit"):
        assert found[name]["note"] == "trained on the 16 of 40 rows that all parties hold"
    settled = load_job(job)
    data = load(settled)
    assert unsplit(settled, data).positions.tolist() == list(range(6, 38, 2))
    assert active_only(settled, data).positions.tolist() == list(range(40))
    assert "trained on the 16 of 40 rows" in run.report().read_text(encoding="utf-8")


def test_without_a_common_row_only_what_needs_one_is_refused(tmp_path):
    held = {"b": range(20), "c": range(20, 40)}
    with pytest.raises(InputError, check=Names("training.baselines", "joint")):
        veracausa.train(lacking(tmp_path, held, range(50, 56), ["active_only", "joint"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = veracausa.train(lacking(tmp_path, held, range(50, 56), ["active_only"]), tmp_path / "run")
    assert run.summary["baselines"]["active_only"]["accuracy"] >= 0


def test_a_baseline_whose_model_does_not_fit_is_refused_before_training(tmp_path):
    """Two pixels are enough for the bottom of a cut at 3, not for the whole model."""
    settings = ["partition.active_has_features=true", "model.cut=3"]
    with pytest.raises(InputError, check=Names("training.baselines", "active_only", "convnet", "6")):
        veracausa.train(JOB, tmp_path / "run", overrides=settings)
    assert not (tmp_path / "run").exists()
