"""Bins: how many, what a target holds, what decoding gives back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from veracausa.defenses.causshield.surrogates import bins


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def certain(indices: torch.Tensor, count: int) -> torch.Tensor:
    """Logits that leave no doubt."""
    return 1e4 * F.one_hot(indices, count).permute(0, 3, 1, 2).float()


def test_there_are_261_colours():
    centres = bins.ab_bins()
    assert centres.shape == (261, 2)
    assert torch.equal(centres, (centres / 10).round() * 10)
    assert len({tuple(centre) for centre in centres.tolist()}) == 261


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_masses_sum_to_one_and_fall_with_the_distance(seed, neighbours):
    values = torch.rand(2, 2, 3, 5, generator=generator(seed)) * 200 - 100
    target = bins.soft_encode(values, bins.ab_bins(), neighbours)
    assert target.indices.shape == (2, neighbours, 3, 5)
    assert torch.allclose(target.masses.sum(1), torch.ones(2, 3, 5))
    assert (target.masses.diff(dim=1) <= 0).all()
    nearest, hard = (
        bins.ab_bins()[i] for i in (target.indices[:, 0], bins.hard_encode(values, bins.ab_bins()).indices[:, 0])
    )
    away = [(values.movedim(1, -1) - centre).square().sum(-1) for centre in (nearest, hard)]
    assert torch.equal(*away), "as near as the nearest; where two are, either will do"


def test_hard_is_soft_with_one_neighbour():
    values = torch.rand(2, 1, 4, 4, generator=generator())
    hard, soft = (bins.hard_encode(values, bins.intensity_bins()), bins.soft_encode(values, bins.intensity_bins(), 1))
    assert torch.equal(hard.indices, soft.indices)
    assert torch.equal(hard.masses, soft.masses)


def test_what_is_certain_decodes_to_its_centre():
    centres = bins.ab_bins()
    indices = torch.randint(261, (2, 6, 5), generator=generator())
    wanted = centres[indices].permute(0, 3, 1, 2)
    logits = certain(indices, 261)
    assert torch.allclose(bins.annealed_mean(logits, centres), wanted)
    assert torch.equal(bins.argmax(logits, centres), wanted)
    assert torch.equal(bins.sample_pixel(logits, centres, generator()), wanted)
    assert torch.equal(bins.sample_window(logits, centres, 1, generator()), wanted)


def test_a_window_has_one_colour_and_the_border_too():
    drawn = bins.sample_window(torch.zeros(2, 261, 10, 7), bins.ab_bins(), 4, generator())
    assert drawn.shape == (2, 2, 10, 7)
    for rows in (slice(0, 4), slice(4, 8), slice(8, 10)):
        for columns in (slice(0, 4), slice(4, 7)):
            window = drawn[..., rows, columns].flatten(2)
            assert torch.equal(window, window[..., :1].expand_as(window))
    assert len({tuple(pixel) for pixel in drawn.permute(0, 2, 3, 1).reshape(-1, 2).tolist()}) > 1


def test_draws_follow_the_distribution():
    p = torch.tensor([0.1, 0.2, 0.7])
    drawn = bins.sample_pixel(p.log().view(1, 3, 1, 1).expand(4, 3, 50, 50), torch.eye(3), generator())
    # 10,000 draws: a share has a standard error below 0.005; this is four of them.
    assert (drawn.mean((0, 2, 3)) - p).abs().max() < 0.02


def test_a_lower_temperature_comes_nearer_to_the_mode():
    logits = torch.randn(1, 16, 4, 4, generator=generator())
    centres = bins.intensity_bins()
    mode = bins.argmax(logits, centres)
    away = [(bins.annealed_mean(logits, centres, t) - mode).abs().mean() for t in (1.0, 0.38, 0.05)]
    assert away[0] > away[1] > away[2]


def test_decoding_can_be_differentiated():
    logits = torch.randn(1, 261, 4, 4, generator=generator(), requires_grad=True)
    (gradient,) = torch.autograd.grad(bins.annealed_mean(logits, bins.ab_bins(), 1.0).square().sum(), logits)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_rebalancing_keeps_the_mean_weight(seed, zeros):
    counts = torch.randint(1, 1000, (20,), generator=generator(seed))
    counts[:zeros] = 0
    weights = bins.rebalancing(counts)
    assert (counts / counts.sum() * weights).sum().item() == pytest.approx(1, abs=1e-5)
    assert (weights[:zeros] == 0).all()
    order = counts[zeros:].argsort()
    assert (weights[zeros:][order].diff() <= 1e-6).all()


def test_cross_entropy_is_that_of_the_dense_target():
    centres, values = bins.ab_bins(), torch.rand(2, 2, 3, 4, generator=generator()) * 100 - 50
    log_p = torch.log_softmax(torch.randn(2, 261, 3, 4, generator=generator(1)), dim=1)
    target, weights = bins.soft_encode(values, centres), torch.rand(261, generator=generator(2))
    dense = torch.zeros(2, 261, 3, 4).scatter_(1, target.indices, target.masses)
    loss = -(dense * log_p).sum(1)
    assert torch.allclose(bins.cross_entropy(log_p, target), loss.mean())
    assert torch.allclose(bins.cross_entropy(log_p, target, weights), (loss * weights[dense.argmax(1)]).mean())


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 11), st.integers(1, 11))
def test_window_variance(seed, window, height, width):
    assert bins.window_variance(torch.full((1, 2, height, width), 0.3), window).abs().max() < 1e-12
    values = torch.rand(2, 2, height, width, generator=generator(seed))
    found = bins.window_variance(values, window)
    side = min(window, height, width)
    assert found.shape == (2, 2, height // side, width // side)
    assert torch.allclose(found[..., 0, 0], values[..., :side, :side].flatten(2).var(2, correction=0), atol=1e-6)
