"""A federation with layers of a defense and adapters is still one joint graph, and predicts as it was trained."""

from __future__ import annotations

import pytest
import torch
import trainings
from trainings import image_data, job_for, table_data, train_all

from veracausa import seeding
from veracausa.config import Job
from veracausa.models.cut import build_adapter, build_top, join
from veracausa.training.optimization import BatchOrder, make_optimizer
from veracausa.training.split.halves import build_defended

MODELS = {"convnet": {"name": "convnet", "cut": 6}, "mlp": {"name": "mlp", "cut": 2, "hidden": [8, 8]}}
# Each side does the same float32 arithmetic in the same order; what is left is the order of a few sums.
TOLERANCE = 1e-6


def joint(job: Job, data) -> tuple[dict, torch.nn.Module, dict]:
    """Ordinary autograd over bottoms, adapters and top in one place, with FedBCD's stale updates."""
    rng = seeding.generator(job.seed, "active", "model")
    outputs = len(data.classes)
    bottoms, optimizers, built = {}, {}, {}
    for name in data.passive:
        own = seeding.generator(job.seed, name, "model")
        built[name] = build_defended(job, name, data.parties[name].shape, outputs, own)
        bottoms[name] = built[name].module.train()
        optimizers[name] = make_optimizer(bottoms[name].parameters(), job.training.optimizer)
    top = build_top(job.model, [half.expected for half in built.values()], data.join, outputs, rng)
    adapters = {name: build_adapter(half.payload, half.expected, rng) for name, half in built.items()}
    weights = [weight for module in (top, *adapters.values()) for weight in module.parameters()]
    optimizer = make_optimizer(weights, job.training.optimizer)
    labels = data.parties["active"].train.labels
    order = BatchOrder(torch.arange(len(labels)), job.training.batch_size, job.seed)
    for step in range(order.per_epoch):
        ids = order.batch(step)
        x = {name: data.parties[name].train.take(ids) for name in bottoms}
        sent = {name: bottoms[name](x[name]) for name in bottoms}
        stale = {name: r.detach().requires_grad_() for name, r in sent.items()}
        for local in range(job.training.local_steps):
            joined = join([adapters[name](stale[name]) for name in bottoms], data.join)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(top(joined), labels[ids]).backward()
            if local == 0:
                gradients = {name: r.grad.clone() for name, r in stale.items()}
            optimizer.step()
        for name in bottoms:
            for local in range(job.training.local_steps):
                r = bottoms[name](x[name]) if local else sent[name]
                optimizers[name].zero_grad()
                r.backward(gradients[name])
                optimizers[name].step()
    return bottoms, top, adapters


@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_layers_and_adapters_learn_as_one_graph(model, local_steps, tmp_path, monkeypatch):
    trainings.registered(monkeypatch)
    data = image_data(2) if model == "convnet" else table_data(2)
    plain = job_for(data, MODELS[model], local_steps=local_steps)
    job = Job.model_validate({**plain.model_dump(), "defense": {"name": "layered"}})
    (states,) = train_all([(job, data)], "threads", tmp_path)
    bottoms, top, adapters = joint(job, data)
    pairs = [("top", states["active"]["top"], top.state_dict())]
    pairs += [(name, states[name]["bottom"], module.state_dict()) for name, module in bottoms.items()]
    pairs += [(name, states["active"]["adapters"][name], module.state_dict()) for name, module in adapters.items()]
    for name, got, expected in pairs:
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            told = f"{name}/{key}"
            torch.testing.assert_close(
                got[key], value, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda m, k=told: f"{k}: {m}"
            )
