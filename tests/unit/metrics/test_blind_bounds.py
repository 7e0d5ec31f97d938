"""Bounds for blind training: bits of an answer, posterior by epsilon, membership."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from veracausa import seeding
from veracausa.metrics.blind_bounds import (
    bits_by_range,
    bits_by_spread,
    membership_bound,
    posterior_bound,
    score_membership,
)


def test_bits_of_numbers_by_range() -> None:
    assert bits_by_range(np.array([3.0, 3.0]), 1.0) == pytest.approx(4.0)
    assert bits_by_range(np.array([0.0]), 0.1) == 0.0
    assert bits_by_range(np.array([1.0]), 0.0) == math.inf


def test_bits_by_spread_are_above_what_a_dithered_number_carries() -> None:
    """I(s; s + u) = h(s + u) − h(u), here by a fine histogram; the Gaussian bound lies above it."""
    rng = np.random.default_rng(0)
    for draw in (rng.standard_normal(400_000), rng.uniform(-2, 2, 400_000), np.sign(rng.standard_normal(400_000))):
        for step in (0.2, 1.0):
            seen = draw + rng.uniform(-step / 2, step / 2, len(draw))
            share, edges = np.histogram(seen, 400, density=True)
            width = edges[1] - edges[0]
            entropy = -float(np.sum(width * share[share > 0] * np.log2(share[share > 0])))
            bounds = bits_by_spread(draw[:, None], step), bits_by_range(np.ptp(draw[:, None], axis=0), step)
            assert entropy - math.log2(step) <= min(bounds) + 0.01


def test_a_number_that_repeats_another_adds_almost_nothing() -> None:
    draw = np.random.default_rng(1).standard_normal((5000, 1))
    alone, twice = bits_by_spread(draw, 0.01), bits_by_spread(np.concatenate([draw, draw], 1), 0.01)
    assert alone < twice < alone + 2
    assert bits_by_spread(np.concatenate([draw, draw[::-1]], 1), 0.01) == pytest.approx(2 * alone, abs=0.1)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_posterior_is_that_of_randomised_response(epsilon: float) -> None:
    """Two classes: the bound is attained by the response that has just this ratio."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    prior = 0.3
    assert posterior_bound(prior, epsilon) == pytest.approx(prior * keep / (prior * keep + (1 - prior) * (1 - keep)))
    assert posterior_bound(0.0, epsilon) == 0
    assert posterior_bound(1.0, epsilon) == 1
    shares = [posterior_bound(p, epsilon) for p in np.linspace(0, 1, 21)]
    assert np.all(np.diff(shares, 2) <= 1e-12)  # concave: a mean of priors bounds the mean of posteriors


def test_a_posterior_needs_a_prior() -> None:
    with pytest.raises(ValueError, match="prior"):
        posterior_bound(1.2, 1.0)


def test_membership_is_bounded_by_epsilon() -> None:
    assert membership_bound(0.0) == 0
    assert membership_bound(50.0, 1e-5) == pytest.approx(1.0)
    assert membership_bound(1.0) == pytest.approx(math.tanh(0.5))


def test_membership_is_scored_on_rows_that_did_not_choose_the_threshold() -> None:
    inside = torch.arange(4000) // 2 % 2 == 0
    nothing = torch.randn(4000, generator=seeding.generator(0))
    chance = score_membership(nothing, inside)
    assert abs(chance.advantage) < 0.06
    assert abs(chance.auc - 0.5) < 0.03
    assert chance.true_positives["0.01"] < 0.03
    told = score_membership(nothing + 3 * inside, inside)
    assert told.advantage > 0.8
    assert told.true_positives["0.01"] > 0.5
    with pytest.raises(ValueError, match="both"):
        score_membership(nothing, torch.ones(4000))
