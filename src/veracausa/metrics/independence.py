"""Whether two samples of paired rows depend on each other: the Hilbert-Schmidt independence criterion."""

from __future__ import annotations

import numpy as np
from scipy.stats import gamma

from veracausa.arrays import Array


def hsic(x: Array, y: Array) -> tuple[float, float]:
    """n·HSIC of rows (n, p) and (n, q) with normal kernels, and how likely independent rows have as much.

    Kernels are as wide as the median distance. The chance is that of a gamma distribution with the mean and the
    variance that the statistic has where there is no dependence (Gretton et al. 2008); it needs some 50 rows.
    """
    n = len(x)
    first, second = _kernel(x), _kernel(y)
    one, other = _centred(first), _centred(second)
    statistic = float((one * other).sum() / n)
    apart = ~np.eye(n, dtype=bool)
    squares = np.square(one * other / 6)[apart].mean()
    variance = 72 * (n - 4) * (n - 5) / (n * (n - 1) * (n - 2) * (n - 3)) * float(squares)
    a, b = float(first[apart].mean()), float(second[apart].mean())
    mean = (1 + a * b - a - b) / n
    if variance <= 0 or mean <= 0:
        return statistic, 1.0
    return statistic, float(gamma.sf(statistic, mean**2 / variance, scale=variance * n / mean))


def _centred(kernel: Array) -> Array:
    return np.asarray(kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean())


def _kernel(rows: Array) -> Array:
    squares = np.square(rows).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0)
    positive = distances[distances > 1e-12]
    width = float(np.median(positive)) if positive.size else 1.0
    return np.asarray(np.exp(-distances / width))
