"""A federated step is a joint autograd step: every model, K = 1, 2, 3, both links, with and without local steps."""

from __future__ import annotations

import pytest
import torch
from trainings import image_data, job_for, table_data, train_all

from veracausa.config import Job
from veracausa.data.vertical import VerticalDataset
from veracausa.models.cut import join
from veracausa.training.baselines import JointGraph
from veracausa.training.optimization import BatchOrder, make_optimizer

MODELS = {
    "convnet": {"name": "convnet", "cut": 6},
    "convnet deep": {"name": "convnet", "cut": 8},
    "resnet18": {"name": "resnet18", "cut": 6, "width": 8},
    "resnet34": {"name": "resnet34", "cut": 10, "width": 4},
    "own": {"name": "trainings:own_network", "cut": 4},
}
FEW = ("convnet Q=3", "own Q=1", "mlp Q=3", "regression Q=1")
# Each side does the same float32 arithmetic in the same order; what is left is the order of a few sums.
TOLERANCE = 1e-6


def fed_bcd(job: Job, dataset: VerticalDataset, local_steps: int) -> JointGraph:
    """The reference: ordinary autograd in one place, FedBCD's stale updates written out."""
    graph = JointGraph(job, dataset).train()
    names = list(graph.bottoms)
    bottoms = {name: make_optimizer(graph.bottoms[name].parameters(), job.training.optimizer) for name in names}
    own = dataset.active in names
    top_parameters = [*graph.top.parameters(), *(graph.bottoms[dataset.active].parameters() if own else [])]
    top = make_optimizer(top_parameters, job.training.optimizer)
    active = dataset.parties[dataset.active].train
    order = BatchOrder(torch.arange(len(active)), job.training.batch_size, job.seed)
    passive = [name for name in names if name != dataset.active]
    for step in range(order.per_epoch):
        ids = order.batch(step)
        x = {name: dataset.parties[name].train.take(ids) for name in names}
        outputs = {name: graph.bottoms[name](x[name]) for name in passive}
        stale = {name: outputs[name].detach().requires_grad_() for name in passive}
        for local in range(local_steps):
            first = [graph.bottoms[dataset.active](x[dataset.active])] if own else []
            prediction = graph.top(join([*first, *stale.values()], dataset.join))
            if dataset.task == "classification":
                loss = torch.nn.functional.cross_entropy(prediction, active.labels[ids])
            else:
                loss = torch.nn.functional.mse_loss(prediction.squeeze(1), active.labels[ids])
            top.zero_grad()
            loss.backward()
            if local == 0:
                gradients = {name: stale[name].grad.clone() for name in passive}
            top.step()
        for name in passive:
            for local in range(local_steps):
                output = outputs[name] if local == 0 else graph.bottoms[name](x[name])
                bottoms[name].zero_grad()
                output.backward(gradients[name])
                bottoms[name].step()
    return graph


def assert_same(states: dict, graph: JointGraph, dataset: VerticalDataset) -> None:
    expected = {
        f"{name}/{key}": value for name, bottom in graph.bottoms.items() for key, value in bottom.state_dict().items()
    }
    expected |= {f"top/{key}": value for key, value in graph.top.state_dict().items()}
    got = {f"top/{key}": value for key, value in states[dataset.active]["top"].items()}
    for name in graph.bottoms:
        got |= {f"{name}/{key}": value for key, value in states[name]["bottom"].items()}
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda m, k=key: f"{k}: {m}")


def cases(passive: int):
    images, tables = image_data(passive), table_data(passive)
    for local_steps in (1, 3):
        for name, model in MODELS.items():
            yield f"{name} Q={local_steps}", job_for(images, model, local_steps=local_steps), images
        mlp = {"name": "mlp", "cut": 2, "hidden": [8, 8]}
        yield f"mlp Q={local_steps}", job_for(tables, mlp, local_steps=local_steps), tables
        numbers = table_data(passive, task="regression")
        yield f"regression Q={local_steps}", job_for(numbers, mlp, local_steps=local_steps), numbers


@pytest.mark.parametrize(
    ("passive", "link"),
    [
        (1, "threads"),
        (3, "threads"),
        pytest.param(2, "threads", marks=pytest.mark.slow),
        pytest.param(2, "processes", marks=pytest.mark.slow),
        pytest.param(1, "processes", marks=pytest.mark.slow),
        pytest.param(3, "processes", marks=pytest.mark.slow),
    ],
)
def test_federated_steps_equal_joint_autograd_steps(passive, link, tmp_path):
    assert_all_same(list(cases(passive)), passive, link, tmp_path)


def test_a_few_of_them_between_processes(tmp_path):
    assert_all_same([case for case in cases(1) if case[0] in FEW], 1, "processes", tmp_path)


def assert_all_same(named, passive, link, tmp_path):
    assert named
    results = train_all([(job, data) for _, job, data in named], link, tmp_path)
    for (name, job, data), states in zip(named, results, strict=True):
        try:
            assert_same(states, fed_bcd(job, data, job.training.local_steps), data)
        except AssertionError as error:
            raise AssertionError(f"{name}, K={passive}, {link}: {error}") from error


def test_the_active_party_may_hold_features_of_its_own(tmp_path):
    data = image_data(2, active_part=True)
    job = job_for(data, MODELS["resnet18"], local_steps=2)
    (states,) = train_all([(job, data)], "threads", tmp_path)
    graph = fed_bcd(job, data, 2)
    assert_same(states, graph, data)


def test_the_comparison_can_fail(tmp_path):
    """One more local step than the reference must not pass for the same."""
    data = image_data(1)
    job = job_for(data, MODELS["convnet"], local_steps=2)
    (states,) = train_all([(job, data)], "threads", tmp_path)
    with pytest.raises(AssertionError):
        assert_same(states, fed_bcd(job, data, 1), data)
