"""Noise: normal, rounded, and parts of a Laplace noise; the published rule under its label."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from veracausa.crypto.randomness import Masks, make_draws
from veracausa.crypto.ring import centred, reduce
from veracausa.discovery.methods.vfedcd.as_published import laplace
from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic, laplace_part
from veracausa.discovery.privacy.mechanism import normal, rounded_normal

MANY = 20_000


def source(seed: int | None) -> Masks:
    return make_draws(seed, "a").masks("noise")


def test_normal_is_normal_and_never_the_same() -> None:
    drawn = source(None)
    values = normal(drawn, 3, MANY + 1)
    assert values.shape == (3, MANY + 1)
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-6
    assert len(np.unique(values)) == values.size
    assert np.array_equal(normal(source(3), 5), normal(source(3), 5))


def test_rounding_is_post_processing() -> None:
    """round(v + N) = v + round(N) for integers v: the rounded noise is the rounded release."""
    noise = 700.5 * normal(source(1), MANY)
    values = np.random.default_rng(0).integers(-(2**40), 2**40, MANY)
    added = centred(reduce(values + rounded_normal(source(1), 700.5, MANY)))
    assert np.array_equal(added, np.rint(values.astype(np.longdouble) + noise).astype(np.int64))


@pytest.mark.parametrize("holders", [1, 2, 5])
def test_parts_sum_to_one_laplace(holders: int) -> None:
    parts = [laplace_part(source(at), 0.25, holders, MANY) for at in range(holders)]
    assert stats.kstest(np.sum(parts, axis=0), "laplace", (0, 0.25)).pvalue > 1e-3
    if holders > 1:
        assert stats.kstest(parts[0], "laplace", (0, 0.25)).pvalue < 1e-9


def test_shares_of_the_sum_open_to_laplace() -> None:
    rule = LaplaceHeuristic(epsilon=128, rule="sum")
    parts = [laplace.share_part(source(at), rule, 52, (MANY,)) for at in range(2)]
    opened = centred(reduce(parts[0] + parts[1])) / 2.0**52
    assert stats.kstest(opened, "laplace", (0, 1 / 128)).pvalue > 1e-3


def test_the_published_rule_is_as_published_and_is_not_laplace() -> None:
    assert laplace.published_scale(128, 2) == 0.0078125
    assert laplace.published_scale(128, 4) == pytest.approx(0.0078125 / np.sqrt(2))
    rule = LaplaceHeuristic(epsilon=128)
    few, many = (laplace.published_noise(source(1), rule, parties, (MANY,)) for parties in (2, 8))
    assert np.abs(few).mean() == pytest.approx(np.abs(many).mean(), rel=0.1)  # what the rule is made for
    assert stats.kurtosis(many) < 1.5  # of Laplace it is 3: the sum's tails are lighter
    assert (laplace.noisy_strengths(source(1), rule, 3, np.zeros((4, 4))) >= 0).all()


@pytest.mark.parametrize("rule", ["published", "sum"])
def test_the_record_says_that_there_is_no_guarantee(rule: str) -> None:
    stated = laplace.statement(LaplaceHeuristic(epsilon=64, rule=rule), 3)
    assert stated["guarantee"] == "heuristic, gives no guarantee"
    assert "epsilon" not in stated
