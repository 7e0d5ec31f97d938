"""Partial overlap: what a party lacks has no say, and each policy is exactly the training it claims to be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from trainings import image_data, job_for, table_data, train_all

import veracausa
from veracausa.config import Job, load_job
from veracausa.data.overlap import restrict
from veracausa.data.vertical import Part, VerticalDataset
from veracausa.errors import InputError
from veracausa.models.cut import join
from veracausa.runs.store import same
from veracausa.training.baselines import JointGraph
from veracausa.training.optimization import BatchOrder, make_optimizer
from veracausa.wire.threads import ThreadLink

MODELS = {
    "convnet": {"name": "convnet", "cut": 6},
    "batch norm": {"name": "resnet18", "cut": 6, "width": 4},
    "own": {"name": "trainings:own_network", "cut": 4},
}
TABLE = {"name": "mlp", "cut": 2, "hidden": [8, 8]}
# The same float32 arithmetic on both sides; what is left is the order of a few sums.
TOLERANCE = 1e-6


def lacking(data: VerticalDataset, **held: list[int]) -> VerticalDataset:
    """The data as it is when these parties hold only these training rows."""
    parties = dict(data.parties)
    for name, rows in held.items():
        parties[name] = replace(parties[name], train=restrict(parties[name].train, torch.tensor(rows)))
    return replace(data, parties=parties)


def laid_over(job: Job, **overlap: str) -> Job:
    return load_job(job, [f"overlap.{key}={value}" for key, value in overlap.items()])


def reference(job: Job, data: VerticalDataset, missing: str) -> JointGraph:
    """Ordinary autograd in one place: absent rows are left out of the loss (gwd), or stand in it as zeros."""
    graph = JointGraph(job, data).train()
    optimizers = [
        make_optimizer(part.parameters(), job.training.optimizer) for part in (*graph.bottoms.values(), graph.top)
    ]
    labels = data.parties[data.active].train.labels
    order = BatchOrder(torch.arange(len(labels)), job.training.batch_size, job.seed)
    for step in range(job.training.epochs * order.per_epoch):
        ids = order.batch(step)
        rows = torch.ones(len(ids), dtype=torch.bool)
        payloads = []
        for name, bottom in graph.bottoms.items():
            held = data.parties[name].train.present(ids)
            output = bottom(data.parties[name].train.take(ids[held]))
            payloads.append(torch.zeros(len(ids), *output.shape[1:]).index_put((held,), output))
            rows &= held
        if missing == "zero_fill":
            rows[:] = True
        assert rows.sum() > 1, "choose rows so that every batch has some that all parties hold"
        prediction = graph.top(join([payload[rows] for payload in payloads], data.join))
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(prediction, labels[ids][rows]).backward()
        for optimizer in optimizers:
            optimizer.step()
    return graph


def assert_same(states: dict, graph: JointGraph, tolerance: float = TOLERANCE) -> None:
    for name, bottom in graph.bottoms.items():
        for key, value in bottom.state_dict().items():
            torch.testing.assert_close(states[name]["bottom"][key], value, rtol=tolerance, atol=tolerance)
    for key, value in graph.top.state_dict().items():
        torch.testing.assert_close(states["active"]["top"][key], value, rtol=tolerance, atol=tolerance)


def weights(states: dict) -> dict:
    kept = ("top", "bottom", "optimizer")
    return {name: {key: state[key] for key in kept if key in state} for name, state in states.items()}


HELD = [row for row in range(24) if row % 3]


def cases():
    for name, model in MODELS.items():
        data = lacking(image_data(2), passive_2=HELD)
        yield name, job_for(data, model, epochs=2), data
    data = lacking(table_data(2), passive_1=list(range(3, 24)), passive_2=HELD)
    yield "table", job_for(data, TABLE, epochs=2), data


@pytest.mark.parametrize("missing", ["gwd", "zero_fill"])
def test_federated_steps_equal_autograd_on_what_is_held(missing, tmp_path):
    named = [(name, laid_over(job, missing=missing), data) for name, job, data in cases()]
    results = train_all([(job, data) for _, job, data in named], "threads", tmp_path)
    for (_, job, data), states in zip(named, results, strict=True):
        assert_same(states, reference(job, data, missing))
        other = "zero_fill" if missing == "gwd" else "gwd"
        with pytest.raises(AssertionError):
            assert_same(states, reference(job, data, other))


def test_dummies_have_no_influence_on_any_party(tmp_path):
    """Zeros or genuine-looking payloads in their place: to the last bit the same weights, statistics and momenta."""
    jobs = [
        (laid_over(job, missing=missing, dummy=dummy), data)
        for _, job, data in cases()
        for missing in ("gwd", "zero_fill")
        for dummy in ("zeros", "resample")
    ]
    results = train_all(jobs, "threads", tmp_path)
    for zeros, resampled in zip(results[::2], results[1::2], strict=True):
        assert same(weights(zeros), weights(resampled))
    for gwd, zero_fill in zip(results[::4], results[2::4], strict=True):
        assert not same(weights(gwd), weights(zero_fill))


@pytest.fixture
def sent(monkeypatch):
    """Everything that crosses."""
    messages = []
    deliver = ThreadLink._deliver

    def spy(self, message, plan):
        messages.append((message, {name: tensor.detach().clone() for name, tensor in message.tensors.items()}))
        deliver(self, message, plan)

    monkeypatch.setattr(ThreadLink, "_deliver", spy)
    return messages


def training_requests(sent: list) -> dict[int, torch.Tensor]:
    requests = [
        (m, t) for m, t in sent if m.kind == "request" and m.meta["purpose"] == "train" and m.receiver == "passive_1"
    ]
    return {message.step: tensors["ids"] for message, tensors in requests}


@pytest.mark.parametrize("dummy", ["zeros", "resample"])
def test_a_dummy_gets_exactly_zero_gradient_at_every_party(dummy, sent, tmp_path):
    data = lacking(image_data(2), passive_2=HELD)
    job = laid_over(job_for(data, MODELS["batch norm"]), dummy=dummy)
    train_all([(job, data)], "threads", tmp_path)
    requests = training_requests(sent)
    gradients = [(m, t["gradient"]) for m, t in sent if m.kind == "gradient"]
    assert len(gradients) == 2 * len(requests) == 6
    for message, gradient in gradients:
        held = data.parties["passive_2"].train.present(requests[message.step])
        assert not held.all()
        assert torch.count_nonzero(gradient[~held]) == 0
        assert all(torch.count_nonzero(row) for row in gradient[held])
    # The lacking party does send something else for a resampled dummy.
    payloads = {m.step: t["payload"] for m, t in sent if m.kind == "representation" and m.sender == "passive_2"}
    for step, ids in requests.items():
        absent = payloads[step][~data.parties["passive_2"].train.present(ids)]
        assert bool(absent.any()) == (dummy == "resample")


def test_drop_enumerates_only_common_ids_and_is_training_on_them(sent, tmp_path):
    whole = image_data(2)
    data = lacking(whole, passive_1=list(range(2, 24)), passive_2=list(range(21)))
    common = list(range(2, 21))
    job = laid_over(job_for(data, MODELS["batch norm"], epochs=2), missing="drop", keep="epochs")
    (states,) = train_all([(job, data)], "threads", tmp_path)
    asked = torch.cat(list(training_requests(sent).values()))
    assert sorted(asked.tolist()) == sorted(2 * common)

    def cut(part: Part) -> Part:
        labels = None if part.labels is None else part.labels[common]
        return Part(len(common), None if part.features is None else part.features[common], labels=labels)

    alone = replace(whole, parties={n: replace(p, train=cut(p.train)) for n, p in whole.parties.items()})
    (expected,) = train_all([(job, alone)], "threads", tmp_path)
    assert same(weights(states), weights(expected))


@pytest.mark.parametrize(
    ("missing", "keep", "steps"), [("drop", "steps", 6), ("drop", "epochs", 4), ("gwd", "steps", 6)]
)
def test_steps_or_epochs_are_kept(missing, keep, steps, sent, tmp_path):
    data = lacking(table_data(2), passive_2=HELD)  # 24 rows, 16 of them common, batches of 8
    train_all([(laid_over(job_for(data, TABLE, epochs=2), missing=missing, keep=keep), data)], "threads", tmp_path)
    requests = training_requests(sent)
    assert len(requests) == steps
    assert {len(ids) for ids in requests.values()} == {8}


def test_a_batch_that_a_party_lacks_altogether_changes_nothing(tmp_path):
    data = table_data(2, rows=16)
    plain = {"name": "sgd", "lr": 0.05, "momentum": 0}
    job = job_for(data, TABLE, optimizer=plain)
    first, second = (BatchOrder(torch.arange(16), 8, job.seed).batch(step) for step in range(2))
    absent = lacking(data, passive_2=sorted(second.tolist()))
    (states,) = train_all([(job, absent)], "threads", tmp_path)
    graph = JointGraph(job, data).train()
    optimizer = make_optimizer(graph.parameters(), job.training.optimizer)
    output = graph([data.parties[name].train.take(second) for name in ("passive_1", "passive_2")])
    nn.functional.cross_entropy(output, data.parties["active"].train.labels[second]).backward()
    optimizer.step()
    assert_same(states, graph)
    assert len(first) == 8


def normalised(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A bottom that cannot run on a single row."""
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.ReLU(), nn.LazyLinear(outputs))


@pytest.mark.parametrize("dummy", ["zeros", "resample"])
def test_batch_normalisation_meets_a_batch_with_one_row_held(dummy, tmp_path, monkeypatch):
    import trainings

    monkeypatch.setattr(trainings, "normalised", normalised, raising=False)
    data = lacking(table_data(2), passive_2=[3, 4, 5])
    job = laid_over(job_for(data, {"name": "trainings:normalised", "cut": 3}, batch_size=4), dummy=dummy)
    order = BatchOrder(torch.arange(24), 4, job.seed)
    held = [int(data.parties["passive_2"].train.present(order.batch(step)).sum()) for step in range(6)]
    assert 1 in held
    (states,) = train_all([(job, data)], "threads", tmp_path)
    assert all(value.isfinite().all() for value in states["passive_2"]["bottom"].values())


@pytest.mark.parametrize("missing", ["gwd", "drop"])
def test_no_common_id_is_refused(missing, tmp_path):
    data = lacking(table_data(2), passive_1=list(range(12)), passive_2=list(range(12, 24)))
    job = job_for(data, TABLE)
    with pytest.raises(InputError, match="no training id"):
        train_all([(laid_over(job, missing=missing), data)], "threads", tmp_path)
    train_all([(laid_over(job, missing="zero_fill"), data)], "threads", tmp_path)


@pytest.mark.parametrize("missing", ["gwd", "drop", "zero_fill"])
def test_a_whole_run_with_overlap(missing, tmp_path):
    job = {
        "data": {"name": "digits", "train": 200, "test": 50},
        "model": {"name": "convnet", "cut": 6},
        "overlap": {"fraction": 0.4, "missing": missing, "parties": ["passive_1"]},
        "training": {"epochs": 1, "batch_size": 32},
        "runtime": {"device": "cpu", "cpu_threads": 1},
    }
    run = veracausa.train(job, tmp_path / "run")
    assert run.summary["parties"]["passive_1"]["rows"] == 80
    assert run.summary["parties"]["passive_2"]["rows"] == 200
    assert run.summary["rounds"] == 7
    assert 0 <= run.summary["accuracy"] <= 1
