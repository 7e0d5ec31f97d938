"""The map whose risk is measured is the generator that sends a batch: adapted to it, on its statistics."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.data.vertical import Part
from veracausa.defenses.causshield import CausShield
from veracausa.defenses.risk_map import STRICT, NotDifferentiable, RiskMap, differs, fault
from veracausa.metrics.jacobian import RowJacobian
from veracausa.models.layers import Dropout
from veracausa.testing.synthetic import small_conv, uniform_rows

IDS = torch.arange(32)


def trained(model: nn.Module | None = None, **settings) -> tuple[CausShield, Tensor]:
    """After two exchanges of 32 rows; what follows is asked about others."""
    x = uniform_rows(96, 1, 8, 4)
    bottom = model or small_conv()
    quick = {"profile": "paper_repaired", "iterations": 6, "surrogate": {"name": "fourier"}, **settings}
    defense = CausShield(**quick)
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), seeding.generator(1, "training"))
    defense.prepare(Part(96, x))
    for step in range(2):
        ids = IDS + 32 * step
        payload, context = defense.forward(x[ids], ids, step)
        defense.backward(context, torch.randn(payload.shape, generator=seeding.generator(step)))
    return defense, x[64:]


@pytest.mark.parametrize(
    "settings",
    [{}, {"profile": "recommended"}, {"scope": "epoch"}, {"scope": "persistent"}, {"batch_norm": "eval"}],
)
def test_it_is_what_is_sent_for_this_batch(settings):
    defense, x = trained(**settings)
    answer = defense.risk_map(x, IDS)
    assert isinstance(answer, RiskMap)
    assert "32 rows" in answer.given
    assert fault(defense, answer, x, IDS, STRICT) == ""
    sent = defense.infer(x, IDS)
    assert torch.allclose(answer.transmit(x, IDS), sent, atol=1e-5)
    assert torch.allclose(answer.transmit(x[:3], IDS[:3]), sent[:3], atol=1e-5), "each row apart from the others"
    RowJacobian(lambda some: answer.transmit(some, IDS), x, 64)  # raises where rows depend on each other


def test_the_last_training_batch_frozen_in_eval_mode_is_another_map():
    """That is what the meter and the likelihood attack once looked at."""
    defense, x = trained()
    frozen = defense.adaptation.payload_eval(x).detach()
    assert differs(frozen, defense.infer(x, IDS), 0.1)
    assert not differs(defense.deterministic_payload(x, IDS), defense.infer(x, IDS), 1e-3)


def test_few_rows_are_sent_by_the_last_generator_and_measured_so():
    defense, x = trained()
    answer = defense.risk_map(x[:8], IDS[:8])
    assert "last training exchange" in answer.given
    assert fault(defense, answer, x[:8], IDS[:8], STRICT) == ""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"mask": "hard_topk"}, "mask"), ({"transmit": "surrogate"}, "surrogate")],
)
def test_what_has_no_jacobian_is_said(settings, reason):
    defense, x = trained(**settings)
    answer = defense.risk_map(x, IDS)
    assert isinstance(answer, NotDifferentiable)
    assert reason in answer.reason
    if reason == "mask":  # an attacker with the weights descends on it all the same
        assert not differs(defense.deterministic_payload(x, IDS), defense.infer(x, IDS), 1e-2)


def test_values_that_are_dropped_at_random_have_no_jacobian():
    model = nn.Sequential(*small_conv(), Dropout(0.3, seeding.generator(0, "model")))
    defense, x = trained(model)
    answer = defense.risk_map(x, IDS)
    assert isinstance(answer, NotDifferentiable)
    assert "at random" in answer.reason
    assert isinstance(defense.risk_map(x[:8], IDS[:8]), RiskMap)


def test_asking_leaves_no_trace():
    defense, x = trained()
    before = {name: value.clone() for name, value in defense.adaptation.generator.state_dict().items()}
    modes = [module.training for module in defense.bottom.modules()]
    defense.risk_map(x, IDS)
    after = defense.adaptation.generator.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert [module.training for module in defense.bottom.modules()] == modes
