"""The noisy bottleneck: its contract, its layers, its limits, its decomposition term, and a run with it."""

from __future__ import annotations

import itertools

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from veracausa import seeding
from veracausa.data.vertical import Part
from veracausa.defenses.methods.noisy_bottleneck import (
    NoisyBottleneck,
    NoisyBottleneckOptions,
    UnitVariance,
    build_bottleneck,
    capacity_bits,
    capped,
)
from veracausa.runs.store import same
from veracausa.testing.defense import check_defense

MAPS, VECTORS = (6, 6, 5), (7,)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VERACAUSA_CACHE", str(tmp_path))


def bound(shape=(3, 6, 5), rows=32, **settings) -> tuple[NoisyBottleneck, torch.Tensor]:
    """A defense on a small bottom of its own, prepared, told of three exchanges; and rows."""
    x = torch.rand(rows, *shape, generator=seeding.generator(0, "rows"))
    defense = NoisyBottleneck(NoisyBottleneckOptions(**settings))
    defense.on_schedule(3)
    with seeding.drawing_from(seeding.generator(0)):
        own = nn.Conv2d(shape[0], 6, 3, padding=1) if len(shape) == 3 else nn.Linear(shape[0], 6)
        expected = MAPS if len(shape) == 3 else (6,)
        bottom = nn.Sequential(own, nn.ReLU(), defense.layers(expected))
    optimizer = torch.optim.SGD(bottom.parameters(), 0.1)
    defense.bind(bottom, optimizer, seeding.generator(1))
    defense.prepare(Part(rows, x))
    return defense, x


@pytest.mark.parametrize(
    "settings",
    [
        {"noise_mode": "fixed", "kernel": 3},
        {"noise_mode": "accounted", "channels": 3},
        {"noise_mode": "accounted", "exchanges": 2},
        {"decomposition": 0.1, "stride": 2, "channels": 3, "surrogate": {"name": "none"}},
        {"noise": 0.0, "clip": 0.0},
    ],
)
def test_every_mode_keeps_the_contract(settings):
    check_defense("noisy_bottleneck", settings)


@pytest.mark.parametrize(
    ("shape", "stride", "payload"), [(MAPS, 1, (4, 6, 5)), (MAPS, 2, (4, 3, 3)), (VECTORS, 1, (4,)), ((3, 5), 1, (4,))]
)
def test_channels_have_unit_variance_and_no_scale_of_their_own(shape, stride, payload):
    layers = build_bottleneck(shape, 4, stride, 1)
    r = layers(100 * torch.randn(64, *shape, generator=seeding.generator(0)) + 7)
    assert r.shape == (64, *payload)
    over = (0, *range(2, r.ndim))
    torch.testing.assert_close(r.mean(over), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(r.std(over, correction=0), torch.ones(4), atol=1e-3, rtol=0)
    assert not list(layers[-1].parameters())


def test_a_batch_of_one_vector_is_normalised_as_at_inference():
    norm = UnitVariance(3)
    norm(torch.randn(8, 3, generator=seeding.generator(0)))
    row, kept = torch.ones(1, 3), norm.running_mean.clone()
    trained = norm.train()(row)
    assert torch.equal(norm.running_mean, kept)
    assert torch.equal(trained, norm.eval()(row))


def test_no_row_has_more_power_than_the_cap():
    r = torch.randn(16, 4, 3, 3, generator=seeding.generator(0)).requires_grad_()
    loud = r * torch.cat([torch.full((1,), 50.0), torch.zeros(1), torch.ones(14)]).view(-1, 1, 1, 1)
    sent = capped(loud, 1.5)
    rms = sent.flatten(1).square().mean(1).sqrt()
    assert rms.max() <= 1.5 + 1e-5
    assert torch.equal(sent[2:], loud[2:])
    sent.sum().backward()
    assert r.grad.isfinite().all()
    assert capped(loud, 0.0) is loud


def test_capacity_is_that_of_a_gaussian_channel():
    assert capacity_bits(256, 1.0, 1.0) == pytest.approx(128)
    assert capacity_bits(256, 1.0, 2.0) < capacity_bits(256, 1.0, 1.0) < capacity_bits(512, 1.0, 1.0)
    assert capacity_bits(8, 1.0, 0.0) == float("inf")


def test_the_bottom_cannot_shout_over_the_noise():
    """A thousand times larger weights send the same: the power is normalised behind them."""
    defense, x = bound(noise=0.0)
    quiet = defense.forward(x, torch.arange(32), 0)[0]
    with torch.no_grad():
        defense.bottom[-1][-2].weight.mul_(1000)
    loud = defense.forward(x, torch.arange(32), 0)[0]
    # What is left is the normalisation's own 1e-5 beside a variance of a few hundredths.
    torch.testing.assert_close(loud, quiet, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("mode", ["fresh", "fixed", "accounted"])
def test_noise_has_the_stated_deviation(mode):
    defense, x = bound(rows=128, noise=0.7, noise_mode=mode, clip=0.0)
    payload, context = defense.forward(x, torch.arange(128), 0)
    wanted = 0.7 * (4**0.5 if mode == "accounted" else 1)  # three exchanges in training, one for inference
    noise = payload - context.payload.detach()
    assert noise.std().item() == pytest.approx(wanted, rel=0.03)
    assert defense.noise_std(payload, x).item() == pytest.approx(wanted)
    asked = defense.infer(x, torch.arange(128)) - defense.deterministic_payload(x, torch.arange(128))
    assert asked.std().item() == pytest.approx(wanted, rel=0.03)


def test_which_noise_is_new_and_which_is_not():
    ids = torch.arange(32)
    for mode, new in (("fresh", True), ("fixed", False), ("accounted", True)):
        defense, x = bound(noise_mode=mode)
        sent = [payload - context.payload.detach() for payload, context in (defense.forward(x, ids, i) for i in (0, 1))]
        assert torch.allclose(sent[0], sent[1], atol=1e-5) != new
        assert defense.is_stochastic == new
        first = defense.infer(x, ids) - defense.deterministic_payload(x, ids)
        if mode == "fixed":  # in training as at inference
            torch.testing.assert_close(first, sent[0], atol=1e-5, rtol=1e-5)
        payload, context = defense.forward(x, ids, 2)
        defense.backward(context, torch.ones_like(payload))
        second = defense.infer(x, ids) - defense.deterministic_payload(x, ids)
        # The bottom has moved: accounted noise is new at every state of it.
        assert torch.allclose(first, second, atol=1e-5) == (mode != "accounted")
        with defense.resampling(seeding.generator(3)):
            again = [defense.infer(x, ids) for _ in range(2)]
        assert not torch.equal(*again), "an attacker that learns from rows of its own could know their noise by heart"


def test_a_row_that_has_crossed_as_planned_says_nothing_and_learns_nothing():
    defense, x = bound(noise_mode="accounted", exchanges=3)
    defense.on_schedule(2)
    few = torch.tensor([4, 4, 9, 4])
    payload, context = defense.forward(x[few], few, 0)
    assert (payload.flatten(1) != 0).any(1).tolist() == [True, True, True, False]
    before = defense.bottom.state_dict()
    kept = {name: value.clone() for name, value in before.items()}
    only_silent = torch.zeros_like(payload)
    only_silent[3] = 1
    defense.backward(context, only_silent)
    assert same(kept, defense.bottom.state_dict())
    assert defense.diagnose(x, torch.arange(32))["spent"] == pytest.approx(1 / 10)
    defense.forward(x[few[2:3]], few[2:3], 1)
    assert not defense.forward(x[few], few, 2)[0].any()


def test_with_fewer_exchanges_a_rows_last_payload_is_repeated_and_still_teaches():
    defense, x = bound(noise_mode="accounted", exchanges=3)
    defense.on_schedule(4)
    assert defense.deviation == pytest.approx(3**0.5)
    ids, sent = torch.arange(32), []
    for step in range(5):
        payload, context = defense.forward(x, ids, step)
        sent.append(payload)
        weight = defense.bottom[0].weight.clone()
        defense.backward(context, torch.randn(payload.shape, generator=seeding.generator(step)))
        assert not torch.equal(weight, defense.bottom[0].weight)
    new = [not torch.equal(a, b) for a, b in itertools.pairwise(sent)]
    assert new == [False, True, False, False]  # two of four are new, and whoever asks a fifth time hears nothing new
    assert defense.diagnose(x, ids)["spent"] == 1.0


def test_options_are_checked():
    with pytest.raises(ValidationError, match="one is for inference"):
        NoisyBottleneckOptions(exchanges=1)
    with pytest.raises(ValidationError, match="kernel"):
        NoisyBottleneckOptions(kernel=5)


def test_the_decomposition_term_brings_rows_and_surrogates_together():
    """Both start from the same weights; nothing but the penalty's weight differs, and no gradient comes back."""
    ids = torch.arange(32)

    def after(weight: float) -> float:
        defense, x = bound(decomposition=weight, surrogate={"name": "jitter"})
        statistics = {name: value.clone() for name, value in defense.bottom.named_buffers()}
        for step in range(30):
            payload, context = defense.forward(x, ids, step)
            expected = {name: value.clone() for name, value in defense.bottom.named_buffers()}
            defense.backward(context, torch.zeros_like(payload))
            assert same(expected, dict(defense.bottom.named_buffers())), "surrogates count as rows in the statistics"
        assert not same(statistics, dict(defense.bottom.named_buffers()))
        payload, context = defense.forward(x, ids, 31)
        return defense.penalty(context.representation, x).item() / weight

    assert after(1.0) < 0.8 * after(1e-9)


def test_diagnostics_say_how_loud_it_is():
    quiet, loud = (bound(noise=noise)[0] for noise in (0.25, 2.0))
    x = bound()[1]
    low, high = (defense.diagnose(x, torch.arange(32)) for defense in (quiet, loud))
    assert low["signal_to_noise_db"] - high["signal_to_noise_db"] == pytest.approx(18.06, abs=0.1)
    assert low["capacity_bits"] > high["capacity_bits"]
