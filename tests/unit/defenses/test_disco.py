"""DISCO's gate closes its share of channels, its pruner blinds the adversary, and the bottom hears only the task."""

from __future__ import annotations

import copy
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from trainings import assert_resumes

from veracausa.defenses.methods.disco import Disco, DiscoOptions, soft_gate
from veracausa.defenses.proxy_adversary import score_net
from veracausa.defenses.risk_map import STRICT, fault
from veracausa.metrics.jacobian import RowJacobian
from veracausa.models.zoo.resnet import BasicBlock
from veracausa.runs.store import same
from veracausa.seeding import drawing_from, generator
from veracausa.testing.defense import check_defense

ROWS = 32


def bound(**settings) -> Disco:
    with drawing_from(generator(0, "model")):
        bottom = nn.Sequential(nn.Conv2d(1, 10, 3, padding=1), nn.ReLU())
    defense = Disco(DiscoOptions(adversary="weak", **settings))
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), generator(1))
    return defense


def rows(count: int = ROWS) -> torch.Tensor:
    return torch.rand(count, 1, 4, 4, generator=generator(2))


@pytest.mark.slow
def test_it_keeps_to_the_contract():
    check_defense("disco", {"pruner": "deep", "loss": "l1", "adversary": "weak", "ratio": 0.9})


@given(st.integers(2, 40), st.floats(0.05, 0.95), st.integers(0, 2**20))
def test_the_gate_closes_its_share_and_keeps_the_highest_scores(channels, ratio, seed):
    scores = torch.randn(3, channels, generator=torch.Generator().manual_seed(seed))
    gate = soft_gate(scores, ratio, 1e4)
    assert ((gate >= 0) & (gate <= 1)).all()
    closed = (gate < 0.5).sum(1)
    assert ((closed - ratio * (channels - 1)).abs() <= 1).all()
    for row, score, shut in zip(gate, scores, closed, strict=True):
        assert set(score.argsort()[:shut].tolist()) == set((row < 0.5).nonzero().flatten().tolist())


def test_the_threshold_is_no_way_out():
    """A shift of all scores changes no gate, so it has no slope either."""
    scores = torch.randn(4, 9, generator=generator(0)).requires_grad_()
    weights = torch.randn(4, 9, generator=generator(1))
    (slope,) = torch.autograd.grad((soft_gate(scores, 0.6, 30) * weights).sum(), scores)
    assert slope.abs().max() > 1e-3
    assert torch.allclose(slope.sum(1), torch.zeros(4), atol=1e-4)


def test_one_exchange_moves_adversary_bottom_and_pruner_and_sends_the_gated_representation():
    defense, x, ids = bound(), rows(), torch.arange(ROWS)
    r = defense.bottom(x).detach()
    payload, context = defense.forward(x, ids, 0)
    assert torch.allclose(payload, r * context.gate.detach()[:, :, None, None])
    assert (context.gate < 0.5).float().mean().item() == pytest.approx(0.6, abs=0.1)
    before = copy.deepcopy(defense.state()["filter"])
    defense.backward(context, torch.randn(payload.shape, generator=generator(3)))
    after = defense.state()["filter"]
    assert not same(before["pruner"], after["pruner"])
    assert not same(before["adversary"], after["adversary"])


@pytest.mark.parametrize("trade_off", [0.0, 1.0])
def test_the_bottom_follows_the_task_alone_through_the_gate(trade_off):
    defense, x, ids = bound(trade_off=trade_off), rows(), torch.arange(ROWS)
    payload, context = defense.forward(x, ids, 0)
    grad = torch.randn(payload.shape, generator=generator(3))
    gate = context.gate.detach()[:, :, None, None]
    slopes = torch.autograd.grad((defense.bottom(x) * gate * grad).sum(), list(defense.bottom.parameters()))
    expected = [p.detach() - 0.1 * slope for p, slope in zip(defense.bottom.parameters(), slopes, strict=True)]
    defense.backward(context, grad)
    for parameter, value in zip(defense.bottom.parameters(), expected, strict=True):
        assert torch.allclose(parameter, value, atol=1e-5)


def test_the_pruner_follows_its_shares_of_task_and_adversary():
    x, ids = rows(), torch.arange(ROWS)
    slopes = {}
    for trade_off in (0.0, 0.25, 1.0):
        defense = bound(trade_off=trade_off)
        payload, context = defense.forward(x, ids, 0)
        grad = torch.randn(payload.shape, generator=generator(3))
        slopes[trade_off] = defense._pruner_slope(context, grad)
        if trade_off == 0:
            gate = context.gate.detach().requires_grad_()
            sent = context.representation.detach() * gate[:, :, None, None]
            (task,) = torch.autograd.grad((sent * grad).sum(), gate)
            assert torch.allclose(slopes[0.0], task, atol=1e-4)
    assert torch.allclose(slopes[0.25], 0.75 * slopes[0.0] + 0.25 * slopes[1.0], atol=1e-5)


def test_a_pruner_that_cares_leaves_its_adversary_less():
    """Half of the channels show the row, half are deaf: only a pruner that looks at the adversary shuts the first."""

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            shown = x.expand(-1, 4, -1, -1)
            return self.scale * torch.cat([shown, torch.full_like(shown, 0.5)], 1)

    shown, read, x, ids = {}, {}, rows(), torch.arange(ROWS)
    for trade_off in (0.0, 1.0):
        gates, errors = [], []
        for seed in (1, 2, 3):  # the game of pruner and adversary now and then ends in a draw: the median counts
            defense = Disco(DiscoOptions(trade_off=trade_off, ratio=0.5, adversary="weak", lr=1e-2))
            bottom = Half()
            defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=1e-6), generator(seed))
            for step in range(50):
                payload, context = defense.forward(x, ids, step)
                defense.backward(context, torch.zeros_like(payload))
            gates.append(defense._held_gate(bottom(x), x)[:, :4].mean().item())
            errors.append(defense.diagnose(x, ids)["proxy_mse"])
        shown[trade_off], read[trade_off] = statistics.median(gates), statistics.median(errors)
    assert shown[1.0] < shown[0.0] - 0.2
    assert read[1.0] > 2 * read[0.0]


def test_the_risk_map_is_the_bottom_behind_gates_that_follow_the_row():
    defense, x, ids = bound(), rows(4), torch.arange(4)
    payload, context = defense.forward(rows(), torch.arange(ROWS), 0)
    defense.backward(context, torch.randn_like(payload))
    gate = defense._held_gate(defense.bottom(x), x)
    v = torch.randn(1, 4, 16, generator=generator(5))
    answer = defense.risk_map(x, ids)
    assert "pruner" in answer.given
    assert fault(defense, answer, x, ids, STRICT) == ""
    held = RowJacobian(defense.bottom, x, 8).jv(v).view(4, 10, 16) * gate[:, :, None]
    found = RowJacobian(lambda rows: answer.transmit(rows, ids), x, 8).jv(v).view(4, 10, 16)
    assert torch.allclose(answer.transmit(x, ids), defense.infer(x, ids), atol=1e-6)
    assert not torch.allclose(found, held, atol=1e-3), "a gate moves with the row"


def test_a_single_row_is_sent_and_teaches_the_bottom_alone():
    defense = bound()
    defense.forward(rows(), torch.arange(ROWS), 0)
    before = copy.deepcopy(defense.state())
    payload, context = defense.forward(rows(1), torch.arange(1), 1)
    weights = defense.bottom[0].weight.clone()
    defense.backward(context, torch.ones_like(payload))
    assert same(before, defense.state())
    assert not torch.equal(weights, defense.bottom[0].weight)


def test_local_steps_repeat_all_three():
    states = []
    for local_steps, exchanges in ((3, 1), (1, 3)):
        defense = bound()
        grad = torch.randn(ROWS, 10, 4, 4, generator=generator(3))
        for step in range(exchanges):
            _, context = defense.forward(rows(), torch.arange(ROWS), step)
            defense.backward(context, grad, local_steps)
        states.append([defense.state(), defense.bottom.state_dict()])
    assert same(*states)


@pytest.mark.parametrize("depth", ["lite", "deep"])
@pytest.mark.parametrize("shape", [(6,), (4, 1, 1), (3, 7, 3), (16, 4, 1), (600, 2, 2)], ids=str)
def test_a_score_net_suits_any_representation(shape, depth):
    net = score_net(shape, 5, depth)
    with torch.autocast("cpu", torch.bfloat16):
        scores = net(torch.randn(2, *shape, generator=generator(0)))
    assert scores.shape == (2, 5)
    scores.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


def test_the_deep_pruner_is_the_rest_of_a_resnet():
    with torch.device("meta"):
        net = score_net((64, 32, 16), 64, "deep")
    assert sum(isinstance(module, BasicBlock) for module in net) == 6
    assert net[-1].in_features == 512


@pytest.mark.slow
def test_a_resumed_run_is_the_undisturbed_one(tmp_path):
    assert_resumes({"name": "disco", "adversary": "weak"}, tmp_path)
