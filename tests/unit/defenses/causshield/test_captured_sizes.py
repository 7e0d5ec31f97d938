"""Where batches differ in size, as they do for a party that lacks some ids, every size has a CUDA graph of its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from veracausa import seeding
from veracausa.defenses.causshield import CausShieldOptions
from veracausa.defenses.causshield import adaptation as module
from veracausa.defenses.causshield.adaptation import Adaptation

ROWS = [24, 10, 17, 24, 10, 17, 9, 24]
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def bottom() -> nn.Module:
    with seeding.drawing_from(seeding.generator(0)):
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def adapted(graphs: bool) -> list[torch.Tensor]:
    """Payloads of batches of several sizes, each after two iterations from where the last one ended."""
    made = Adaptation(bottom().cuda(), (8, 8, 6), 24, CausShieldOptions(masker=False), seed=3, graphs=graphs)
    made.reset_to_bottom()
    payloads = []
    for at, rows in enumerate(ROWS):
        x = torch.rand(rows, 3, 8, 6, generator=seeding.generator(at)).cuda()
        made.adapt(x, 1 - x, 2)
        payloads.append(made.payload(x).clone())
    assert sorted(made._captured) == (sorted(set(ROWS))[: module.SIZES] if graphs else [])
    return payloads


@pytest.mark.gpu
@cuda
def test_replayed_batches_of_any_size_are_those_that_run_as_usual(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for replayed, usual in zip(adapted(True), adapted(False), strict=True):
        torch.testing.assert_close(replayed, usual, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@cuda
def test_sizes_beyond_what_is_captured_run_as_usual(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    usual = adapted(False)
    monkeypatch.setattr(module, "SIZES", 1)
    made = Adaptation(bottom().cuda(), (8, 8, 6), 24, CausShieldOptions(masker=False), seed=3, graphs=True)
    made.reset_to_bottom()
    for at, rows in enumerate(ROWS):
        x = torch.rand(rows, 3, 8, 6, generator=seeding.generator(at)).cuda()
        made.adapt(x, 1 - x, 2)
        torch.testing.assert_close(made.payload(x), usual[at], rtol=1e-4, atol=1e-4)
    assert list(made._captured) == [24]


@pytest.mark.gpu
@cuda
def test_a_flat_reading_with_players_in_turn_is_compiled_and_captured(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    payloads = []
    for fast in (True, False):
        options = CausShieldOptions(profile="literal", lr_generator=0.01, lr_masker=0.1)
        made = Adaptation(bottom().cuda(), (8, 8, 6), 24, options, seed=3, graphs=fast, compiled=fast)
        made.draws.manual_seed(1)
        made.reset_to_bottom()
        x = torch.rand(24, 3, 8, 6, generator=seeding.generator(5)).cuda()
        made.adapt(x, 1 - x, 3)
        assert (made.reading, made.count > made.rows) == ("flat", True)
        assert [turn.compiled for turn in made.turns] == [fast, fast], "compiled, and it stayed so"
        assert list(made._captured) == ([24] if fast else [])
        payloads.append(made.payload(x))
    torch.testing.assert_close(*payloads, rtol=1e-3, atol=1e-3)
