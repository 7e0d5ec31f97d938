"""Laplace noise: its scale in every reading, its gradient, and that it can be averaged away."""

from __future__ import annotations

import math

import pytest
import torch

from veracausa.testing.synthetic import bound, linear, uniform_rows

X, IDS = uniform_rows(256, 6), torch.arange(256)


def sent(defense, x=X, ids=IDS):
    payload, context = defense.forward(x, ids, 0)
    return payload - context.payload.detach()


@pytest.mark.parametrize(("epsilon", "scale"), [(1.0, 1.0), (2.0, 0.5)])
def test_raw_noise_has_scale_one_over_epsilon(epsilon, scale):
    noise = sent(bound("laplace", linear(40, 6), epsilon=epsilon))
    assert float(noise.abs().mean()) == pytest.approx(scale, rel=0.04)  # E|Lap(b)| = b; 10,240 draws
    assert float(noise.std()) == pytest.approx(scale * math.sqrt(2), rel=0.06)


def test_clipped_noise_has_scale_two_clips_over_epsilon_and_its_gradient_stops_at_the_clip():
    bottom = linear(40, 6)
    with torch.no_grad():
        bottom.weight.mul_(20)
    defense = bound("laplace", bottom, reading="clip", clip=0.5, epsilon=2.0)
    payload, context = defense.forward(X, IDS, 0)
    assert context.payload.abs().max() <= 0.5
    assert float((payload - context.payload.detach()).abs().mean()) == pytest.approx(0.5, rel=0.04)
    inside = context.representation.abs() < 0.5
    (slope,) = torch.autograd.grad(context.payload.sum(), context.representation)
    assert torch.equal(slope, inside.float())


def test_norm_scaled_noise_follows_the_largest_payload_of_the_batch():
    defense = bound("laplace", linear(40, 6), reading="norm", epsilon=4.0)
    large = X * torch.where(IDS == 3, 10.0, 1.0).unsqueeze(1)
    expected = defense.bottom(large).detach().norm(dim=1).max() / 4
    assert float(sent(defense, large).abs().mean()) == pytest.approx(float(expected), rel=0.04)


def test_training_noise_is_fresh_or_fixed_and_inference_noise_is_always_fixed():
    fresh, fixed = (bound("laplace", linear(4, 6), noise=noise) for noise in ("fresh", "fixed"))
    assert not torch.equal(sent(fresh), sent(fresh))
    assert torch.equal(sent(fixed), sent(fixed))
    assert torch.equal(fixed.infer(X, IDS), fixed.forward(X, IDS, 0)[0])
    assert torch.equal(fresh.infer(X, IDS)[5:9], fresh.infer(X[5:9], IDS[5:9]))
    assert fresh.is_stochastic
    assert not fixed.is_stochastic


def test_an_audit_gets_other_draws_and_averages_them_away():
    rng = torch.Generator().manual_seed(3)
    for noise in ("fresh", "fixed"):
        defense = bound("laplace", linear(4, 6), noise=noise)
        before = defense.rng.get_state()
        asked = defense.infer(X, IDS)
        with defense.resampling(rng):
            mean = torch.stack([defense.infer(X, IDS) for _ in range(100)]).mean(0)
        error = (mean - defense.deterministic_payload(X, IDS).detach()).std() / math.sqrt(2)
        assert float(error) == pytest.approx(0.1, rel=0.15)
        assert torch.equal(defense.infer(X, IDS), asked)
        assert torch.equal(defense.rng.get_state(), before)


def test_the_gradient_goes_straight_through_and_local_steps_draw_nothing():
    defense = bound("laplace", linear(4, 6))
    _, context = defense.forward(X, IDS, 0)
    state = defense.rng.get_state()
    before = defense.bottom.weight.detach().clone()
    defense.backward(context, torch.ones(256, 4), local_steps=3)
    assert torch.equal(defense.rng.get_state(), state)
    assert torch.allclose(before - defense.bottom.weight, 3 * 0.1 * X.sum(0).expand(4, 6), rtol=1e-4)


def test_it_says_how_strong_its_noise_is():
    bottom = linear(200, 6)
    found = bound("laplace", bottom, epsilon=0.5).diagnose(X, IDS)
    assert found["noise_deviation"] == pytest.approx(2 * math.sqrt(2), rel=0.03)
    signal = bottom(X).detach().var(0, correction=0).mean()
    assert found["signal_to_noise_db"] == pytest.approx(float(10 * torch.log10(signal / 8)), abs=0.3)
    deviation = bound("laplace", bottom, epsilon=0.5).noise_std(bottom(X), X)
    assert float(deviation) == pytest.approx(2 * math.sqrt(2))
