"""The profiles: what the paper prints, the same with repairs, and the name that one of them had before."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from veracausa.defenses.causshield import CausShield
from veracausa.defenses.causshield import options as module
from veracausa.defenses.causshield.options import CausShieldOptions


def test_literal_has_every_printed_choice() -> None:
    found = CausShieldOptions(profile="literal")
    assert (found.lr_generator, found.lr_masker, found.momentum) == (1e-4, 1e-4, 0.9)
    assert (found.dimensions, found.beta, found.logit_bn, found.players) == ("flat", 1.0, False, "alternating")
    assert (found.scope, found.iterations, found.surrogate.name) == ("batch", 30, "printed")


def test_the_name_of_before_is_understood_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    module._tell_of.cache_clear()
    with caplog.at_level(logging.WARNING):
        old = CausShieldOptions(profile="paper")
        CausShieldOptions(profile="paper")
    assert old == CausShieldOptions(profile="paper_repaired")
    assert caplog.text.count("paper_repaired") == 1


@pytest.mark.parametrize("rows", [torch.Size([40, 1, 8, 4]), torch.Size([40, 6])], ids=["grey", "table"])
def test_literal_trains_on_rows_that_the_paper_does_not_have(rows: torch.Size) -> None:
    x = torch.rand(rows, generator=torch.Generator().manual_seed(0))
    bottom = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 8), nn.ReLU())
    surrogate = {"surrogate": {"name": "intensity", "rebalance": False, "epochs": 1, "width": 8}} if x.ndim == 4 else {}
    shield = CausShield(profile="literal", iterations=2, lr_generator=0.1, **surrogate)
    shield.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), torch.Generator().manual_seed(0))
    shield.prepare(x)
    payload, context = shield.forward(x, torch.arange(len(x)), 1)
    assert not torch.equal(payload, bottom(x))
    shield.backward(context, torch.ones_like(payload))
