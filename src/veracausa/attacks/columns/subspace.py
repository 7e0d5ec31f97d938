"""The few directions that features lie in: X·W has no more of them than X has columns."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array

NEGLIGIBLE = 1e-9
"""A direction with less than this share of the variance is rounding."""


def flat(features: Array) -> Array:
    """(n, …) as (n, numbers)."""
    return features.reshape(len(features), -1)


def beside(history: Array) -> Array:
    """(moments, n, m) as (n, moments·m): all that was opened of a row, side by side."""
    moments, n, m = history.shape
    return np.ascontiguousarray(history.swapaxes(0, 1)).reshape(n, moments * m)


def directions(features: Array, rank: int) -> Array:
    """(n, at most rank): the features' strongest directions, centred, each of variance one.

    With noise on the features this is also what takes most of it away: the noise lies in all directions, X·W in few.
    """
    centred = features - features.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    kept = singular[:rank] ** 2 > max(NEGLIGIBLE * np.sum(singular**2), 1e-30)
    return np.asarray(left[:, :rank][:, kept] * np.sqrt(len(features)))


def regressed(known: Array, values: Array, all_rows: Array) -> Array:
    """What a linear map of features says of all rows, fitted on the known ones; of the maps that fit, the smallest."""
    centre, mean = known.mean(0), values.mean(0)
    solution, *_ = np.linalg.lstsq(known - centre, values - mean, rcond=1e-8)
    return np.asarray((all_rows - centre) @ solution + mean)


def explained(features: Array, values: Array) -> Array:
    """R² of each column of `values` by a linear map of all features, fitted on all rows."""
    found = regressed(features, values, features)
    rest = np.square(values - found).sum(0)
    return np.asarray(1 - rest / np.square(values - values.mean(0)).sum(0))
