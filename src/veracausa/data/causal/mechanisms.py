"""How an effect follows from its causes in the suite's generators: one function a generator, noise apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from veracausa.arrays import Array
from veracausa.data.causal.columns import standardised

Generator = Literal[
    "paper",
    "linear",
    "gp_joint",
    "gp_additive",
    "quadratics",
    "quadratics_bounded",
    "sines",
    "multiple_index",
    "mlp",
    "heteroscedastic",
    "multiplied",
    "counts",
]
Noise = Literal["gaussian", "exponential", "uniform", "laplace"]

UNITS = 100
"""Hidden units of a random network."""
FEATURES = 300
"""Random Fourier features of a Gaussian process: the kernel is met within about one part in seventeen."""
RAW: frozenset[str] = frozenset({"linear", "multiple_index", "mlp"})
"""Generators that take causes as they were generated, as their papers do; the others standardise them first."""
REACH = 3.0
"""So many deviations of a cause enter a bounded parabola."""


def weights(shape: int | tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniform in [-2, -0.5] and [0.5, 2]: no cause is without effect."""
    return np.asarray(rng.uniform(0.5, 2, shape) * rng.choice([-1.0, 1.0], shape))


def unit_noise(kind: Noise, rows: int, rng: np.random.Generator) -> Array:
    """Noise of mean 0 and deviation 1."""
    if kind == "exponential":
        return rng.exponential(1, rows) - 1
    if kind == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), rows)
    if kind == "laplace":
        return rng.laplace(0, np.sqrt(0.5), rows)
    return rng.normal(0, 1, rows)


def noise_deviation(generator: Generator, rng: np.random.Generator) -> float:
    """The deviation of one column's noise where nothing is said of what its causes explain."""
    if generator == "linear":
        return float(np.sqrt(rng.uniform(0.5, 2)))
    if generator in ("gp_joint", "gp_additive", "heteroscedastic"):
        return float(np.sqrt(rng.uniform(0.4, 0.8)))
    if generator in ("paper", "multiplied", "sines"):
        return 0.5
    return 1.0


def effect(generator: Generator, causes: Array, levels: Array, rng: np.random.Generator) -> Array:
    """What the causes do: (n,) of (n, p) numbers and (n, q) levels of categories, each of deviation 1.

    Generators that add up their causes add a weighted level for each categorical cause. The others take levels as
    numbers beside the rest, so that such a cause also changes what the other causes do.
    """
    if generator not in RAW:
        causes = standardised(causes)[0]
    if generator in _JOINT:
        return _JOINT[generator](np.column_stack([causes, levels]), rng)
    total = levels @ weights(levels.shape[1], rng)
    for cause in causes.T:
        total = total + _ADDITIVE[generator](cause, rng)
    return np.asarray(total)


def random_network(causes: Array, rng: np.random.Generator) -> Array:
    """One hidden layer of sigmoids with weights bounded away from 0, as in NO-TEARS-MLP and in VFedCD's paper."""
    inner, outer = weights((causes.shape[1], UNITS), rng), weights(UNITS, rng)
    return np.asarray(1 / (1 + np.exp(-(causes @ inner))) @ outer)


def gaussian_process(causes: Array, rng: np.random.Generator) -> Array:
    """One draw of a process with the kernel exp(-|x - y|²/2), by random Fourier features (Rahimi and Recht 2007)."""
    frequencies = rng.normal(0, 1, (causes.shape[1], FEATURES))
    waves = np.cos(causes @ frequencies + rng.uniform(0, 2 * np.pi, FEATURES))
    return np.asarray(waves @ rng.normal(0, 1, FEATURES) * np.sqrt(2 / FEATURES))


def multiple_index(causes: Array, rng: np.random.Generator) -> Array:
    """tanh, cos and sin of three random projections, as in NO-TEARS-MLP's experiments."""
    projected = causes @ weights((causes.shape[1], 3), rng)
    return np.asarray(np.tanh(projected[:, 0]) + np.cos(projected[:, 1]) + np.sin(projected[:, 2]))


def _line(cause: Array, rng: np.random.Generator) -> Array:
    return cause * weights(1, rng)


def _quadratic(cause: Array, rng: np.random.Generator) -> Array:
    """A parabola of a parabola has tails in which one row can be most of a column's variance."""
    square, line = weights(2, rng)
    return np.asarray(square / 2 * cause**2 + line * cause)


def _bounded_quadratic(cause: Array, rng: np.random.Generator) -> Array:
    return _quadratic(np.clip(cause, -REACH, REACH), rng)


def _sine(cause: Array, rng: np.random.Generator) -> Array:
    return np.asarray(np.sin(rng.uniform(1, 2) * cause + rng.uniform(0, 2 * np.pi)))


def _process(cause: Array, rng: np.random.Generator) -> Array:
    return gaussian_process(cause[:, None], rng)


_JOINT: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "paper": random_network,
    "mlp": random_network,
    "multiplied": random_network,
    "gp_joint": gaussian_process,
    "multiple_index": multiple_index,
}
_ADDITIVE: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "linear": _line,
    "counts": _line,
    "quadratics": _quadratic,
    "quadratics_bounded": _bounded_quadratic,
    "sines": _sine,
    "gp_additive": _process,
    "heteroscedastic": _process,
}
