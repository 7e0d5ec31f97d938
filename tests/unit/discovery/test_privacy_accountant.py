"""ε of many Gaussian releases: published values, agreement of two formulas, and what must grow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from veracausa.discovery.privacy.accountant import (
    Account,
    concentrated_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    noise_for,
)
from veracausa.discovery.privacy.mechanism import make_mechanism, said, statement
from veracausa.discovery.privacy.options import Privacy


def test_known_values() -> None:
    # Φ(−½) − e·Φ(−3/2).
    assert gaussian_delta(1.0, 1.0) == pytest.approx(0.12693674, abs=1e-8)
    # The deviation that the analytic Gaussian mechanism needs for ε = 1, δ = 10⁻⁵ and sensitivity 1.
    assert 1 / gaussian_mu(1.0, 1e-5) == pytest.approx(3.730632, abs=1e-6)
    assert concentrated_epsilon(0.5, 1e-5) == pytest.approx(0.5 + 2 * math.sqrt(0.5 * 5 * math.log(10)))


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.5), (1.0, 2.0), (3.0, 9.0)])
def test_delta_is_what_the_definition_says(mu: float, epsilon: float) -> None:
    """sup over events of P(A) − e^ε·Q(A) is the integral of the positive part, for N(μ, 1) and N(0, 1)."""
    start = epsilon / mu + mu / 2  # where the densities' ratio is e^ε
    hockey, _ = quad(lambda x: norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), start, start + 20, epsabs=1e-14)
    assert gaussian_delta(mu, epsilon) == pytest.approx(hockey, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    epsilon=st.floats(0.05, 500), delta=st.floats(1e-12, 0.1), releases=st.integers(1, 5000), more=st.integers(1, 500)
)
def test_epsilon_comes_back_and_grows_with_releases(epsilon: float, delta: float, releases: int, more: int) -> None:
    noise = noise_for(epsilon, delta, releases)
    spent = Account(noise, releases, delta).epsilon
    assert epsilon * (1 - 1e-5) <= spent <= epsilon * (1 + 1e-6)
    assert Account(noise, releases + more, delta).epsilon > spent
    assert Account(noise * 1.1, releases, delta).epsilon < spent
    assert spent <= concentrated_epsilon(Account(noise, releases, delta).rho, delta) + 1e-9


def test_releases_compose_as_one_with_the_squares_summed() -> None:
    one, many = Account(5.0, 1, 1e-6), Account(5.0 * 6, 36, 1e-6)
    assert many.mu == pytest.approx(one.mu)
    assert one.mu == pytest.approx(2 / 5)  # a row replaced, not removed
    assert gaussian_epsilon(0.0, 1e-5) == 0.0


def test_a_statement_counts_what_was_released_beyond_the_plan() -> None:
    privacy = Privacy(epsilon=4.0)
    planned, torn = statement(privacy, 40, 40), statement(privacy, 50, 40)
    assert planned["epsilon"] == pytest.approx(4.0, rel=1e-6)
    assert torn["epsilon"] > 4.3
    assert "epsilon 4 at delta 1e-05" in said(planned)
    assert "features that a target opens" in said(planned)


def test_integers_cost_noise_and_never_less() -> None:
    privacy = Privacy(epsilon=4.0, clip=1.0)
    exact = make_mechanism(privacy, 15, 10, 40)
    fine, coarse = (make_mechanism(privacy, 15, 10, 40, unit) for unit in (0.01, 0.1))
    assert exact.contribution == pytest.approx(math.sqrt(15))
    assert exact.deviation < fine.deviation < 1.1 * exact.deviation
    assert coarse.deviation > 1.5 * exact.deviation
