"""Concentrated differential privacy: what Gaussian noise on integers amounts to, exactly, as ε at δ.

A release of integers whose vector moves by at most Δ between neighbours, with a discrete Gaussian of parameter σ added
to every entry, is ρ-concentrated with ρ = Δ²/(2σ²). Releases add up their ρ (Bun and Steinke, 2016; Canonne, Kamath and
Steinke, 2020).
"""

from __future__ import annotations

import math


def concentrated_epsilon(rho: float, delta: float) -> float:
    """ρ + 2√(ρ ln 1/δ): an ε that ρ-concentrated privacy gives at δ; not the least."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The δ that ρ-concentrated privacy has at ε (Canonne, Kamath and Steinke, 2020, Proposition 12).

    δ = inf over α > 1 of exp((α−1)(αρ−ε)) / (α−1) · (1 − 1/α)^α. Any α is sound, and the logarithm is convex in α.
    """
    if rho == 0:
        return 0.0

    def log_delta(alpha: float) -> float:
        return (alpha - 1) * (alpha * rho - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)

    low, high = 1.0, max(2.0, (epsilon / rho + 1) / 2 + 1)
    while log_delta(high * 1.01) < log_delta(high):
        high *= 2
    for _ in range(200):  # golden sections of a stretch that holds the least
        first, second = high - (high - low) * _GOLDEN, low + (high - low) * _GOLDEN
        low, high = (low, second) if log_delta(first) < log_delta(second) else (first, high)
        if high - low < 1e-12 * high:
            break
    return min(1.0, math.exp(log_delta((low + high) / 2)))


_GOLDEN = (math.sqrt(5) - 1) / 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The least ε that this conversion gives at δ, rounded up in its last digits."""
    low, high = 0.0, concentrated_epsilon(rho, delta)
    if zcdp_delta(rho, low) <= delta:
        return 0.0
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if zcdp_delta(rho, middle) <= delta else (middle, high)
    return high


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest ρ whose ε at δ is no larger than this one, rounded down in its last digits."""
    low, high = 0.0, 1.0
    while zcdp_delta(high, epsilon) <= delta:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_delta(middle, epsilon) <= delta else (low, middle)
    return low
