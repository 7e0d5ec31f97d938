"""What the networks leave of columns: how likely it is whatever the form of the noise, and whether noise is uneven.

A normal density can not tell some orders apart: along any order of straight lines noise of the same size is left. The
form of what is left can. So orders are compared under a density that is taken from the training rows' own residuals.
"""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array, Mask

POINTS = 300
"""So many quantiles of the training residuals stand for all of them."""
WIDE, WIDE_SHARE = 3.0, 0.02
"""Deviations of a wide normal that has this share of the density, so that no single row decides."""
SURE = 1e-4
"""A chance below this speaks for uneven noise, or for a bad fit."""
FAR = 0.99
"""Squares beyond this quantile count as it."""
MOST = 0.5
"""The share of such effects from which the other likelihood is tried."""


def density_losses(train: Array, apart: Array) -> Array:
    """The negative logarithm of the density of residuals (..., n), by a kernel density of others (..., m)."""
    points = np.quantile(train, (np.arange(POINTS) + 0.5) / POINTS, axis=-1)
    points = np.moveaxis(points, 0, -1)
    deviation = np.maximum(train.std(axis=-1), 1e-9)
    quarter = (points[..., (3 * POINTS) // 4] - points[..., POINTS // 4]) / 1.349
    spread = np.where(quarter > 0, np.minimum(deviation, quarter), deviation)
    width = 0.9 * spread * train.shape[-1] ** -0.2
    found = np.empty(apart.shape)
    for at in np.ndindex(*apart.shape[:-1]):
        away = (apart[at][:, None] - points[at]) / width[at]
        kernel = np.exp(-0.5 * away**2).mean(axis=1) / width[at]
        far = apart[at] / (WIDE * deviation[at])
        wide = np.exp(-0.5 * np.clip(far, -30, 30) ** 2) / (WIDE * deviation[at])
        found[at] = -np.log(((1 - WIDE_SHARE) * kernel + WIDE_SHARE * wide) / np.sqrt(2 * np.pi) + 1e-300)
    return found


def uneven_effects(residuals: Array, rows: Array, graph: Mask, judged: Mask) -> Mask:
    """(d,): effects whose squared residuals (n, d) follow from their causes, by a regression on curves of these.

    What a network fits badly looks like that as well as uneven noise does.
    """
    from scipy.stats import f as f_distribution

    found = np.zeros(len(graph), dtype=bool)
    for effect in np.flatnonzero(graph.any(axis=0) & judged):
        squares = np.square(residuals[:, effect])
        squares = np.minimum(squares, np.quantile(squares, FAR))
        causes = np.clip(rows[:, graph[:, effect]], -3, 3)
        design = np.column_stack([np.ones(len(rows)), causes, causes**2])
        left = squares - design @ np.linalg.lstsq(design, squares, rcond=None)[0]
        free, rest = design.shape[1] - 1, len(rows) - design.shape[1]
        if rest < 1:
            continue
        whole = np.square(squares - squares.mean()).sum()
        ratio = (whole - left @ left) / free / max(left @ left / rest, 1e-300)
        found[effect] = f_distribution.sf(ratio, free, rest) < SURE
    return found
