"""Masks of exactly k dimensions with a gradient, and a masker that looks at its input."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa import seeding
from veracausa.defenses.causshield.masker import always_up, build_masker, gumbel, iterative_softmax, top_k, upper_count


def draw(logits, seed=0):
    return gumbel(logits.shape, seeding.generator(seed))


@given(dimensions=st.integers(2, 60), tau=st.floats(0.05, 0.95), seed=st.integers(0, 20))
def test_exactly_k_ones_a_row(dimensions, tau, seed):
    logits = torch.randn(5, dimensions, generator=seeding.generator(seed))
    k = upper_count(tau, dimensions)
    assert 1 <= k < dimensions
    upper = top_k(logits, k, 0.5, draw(logits, seed)).detach()
    assert (upper.round() - upper).abs().max() < 1e-6
    assert (upper.round().sum(1) == k).all()


def test_gradient_reaches_the_logits_and_the_draw_is_the_generator_s():
    logits = torch.randn(4, 10, requires_grad=True)
    first, second = (top_k(logits, 5, 0.5, draw(logits, 3)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, top_k(logits, 5, 0.5, draw(logits, 4)))
    (first * torch.arange(10.0)).sum().backward()
    assert (logits.grad != 0).any(1).all()


def test_without_noise_the_highest_logits_win():
    logits = torch.tensor([[3.0, -1.0, 2.0, 0.0]])
    assert torch.equal(top_k(logits, 2, 0.5, None), torch.tensor([[1.0, 0.0, 1.0, 0.0]]))


def test_cirl_s_sampler_stays_within_bounds():
    mask = iterative_softmax(torch.randn(3, 8), 4, 0.5, seeding.generator(0))
    assert mask.min() >= 0
    assert mask.max() <= 1


SHAPES = [((6, 8, 4), "channel"), ((6, 8, 4), "pooled"), ((6, 8, 4), "patch"), ((6, 8, 4), "flat"), ((12,), "flat")]


@pytest.mark.parametrize(("shape", "reading"), SHAPES)
def test_no_dimension_is_always_up_with_the_last_normalisation(shape, reading):
    rng = seeding.generator(1)
    with seeding.drawing_from(rng):
        masker = build_masker(shape, reading, (2, 2), True, rng)
    rows = torch.randn(64, *shape, generator=rng)
    logits = masker(rows)
    upper = top_k(logits, upper_count(0.5, logits.shape[1]), 0.5, None)
    assert float(always_up(upper)) == 0
    assert logits.var(0).min() > 0


def test_a_biased_masker_without_it_is_caught():
    rng = seeding.generator(1)
    with seeding.drawing_from(rng):
        masker = build_masker((6, 8, 4), "channel", (2, 2), False, rng)
    with torch.no_grad():
        masker[11].bias.copy_(torch.tensor([9.0, 9, 9, -9, -9, -9]))
    upper = top_k(masker(torch.randn(64, 6, 8, 4, generator=rng)), 3, 0.5, None)
    assert float(always_up(upper)) == 0.5
