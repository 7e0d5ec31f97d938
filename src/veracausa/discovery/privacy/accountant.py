"""What Gaussian noise on many releases amounts to: an exact ε at δ, before the run and after it.

Every row lies in one fixed batch, which is used once an epoch: an epoch is one release of each row, and nothing is
sampled, so that nothing is amplified. A release with sensitivity Δ and noise σ is μ-Gaussian with μ = Δ/σ, and T of
them, each chosen by what the others gave, are μ√T-Gaussian. That is tight, and so is its ε (Balle and Wang, 2018;
Dong, Roth and Su, 2022). In terms of concentrated privacy the same is ρ = μ²/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import log_ndtr

from veracausa.crypto.zcdp import concentrated_epsilon
from veracausa.defenses.noise import accounted_deviation

REPLACED = 2.0
"""Another row in place of one: what it added goes, and as much may come."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε · Φ(−μ/2 − ε/μ) of a μ-Gaussian mechanism."""
    if mu == 0:
        return 0.0
    gone, left = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return max(0.0, math.exp(log_ndtr(gone)) - math.exp(epsilon + log_ndtr(left)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least ε that a μ-Gaussian mechanism has at δ, rounded up in its last digits."""
    low, high = 0.0, concentrated_epsilon(mu**2 / 2, delta)
    if gaussian_delta(mu, low) <= delta:
        return 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(mu, middle) <= delta else (middle, high)
    return high


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ whose ε at δ is no larger than this one, rounded down in its last digits."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low


def noise_for(epsilon: float, delta: float, releases: int) -> float:
    """The noise that each of so many releases needs, in units of the most that one row can add."""
    return accounted_deviation(REPLACED / gaussian_mu(epsilon, delta), releases)


@dataclass(frozen=True)
class Account:
    """So many releases of every row, each with this noise in units of the most that one row can add."""

    noise: float
    releases: int
    delta: float

    @property
    def mu(self) -> float:
        return REPLACED * math.sqrt(self.releases) / self.noise

    @property
    def rho(self) -> float:
        return self.mu**2 / 2

    @property
    def epsilon(self) -> float:
        return gaussian_epsilon(self.mu, self.delta)
