"""Ridge regression from centred sums: its strength by generalised cross-validation, also of sums with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.errors import RunError

Places = NDArray[np.int64]

GRID = np.logspace(-9, 2, 67)
"""Strengths that are tried, a row: features have spread one, so λ = n shrinks a lone feature's weight by half."""


@dataclass(frozen=True)
class CentredSums:
    """Sums of products of centred columns: of the regressors x and the labels y."""

    rows: int
    means: Array
    """(p,) of x."""
    label_means: Array
    label_sums: Array
    """(k,): of 0/1 columns, how many rows each class has."""
    xx: Array
    """(p, p), positive semidefinite: noise that made it otherwise was projected away."""
    xy: Array
    yy: Array
    raw_xy: Array
    """(p, k), not centred: of 0/1 labels the sum of x over a class."""
    noise_xx: Array | None
    """(p, p) variances of what was added to `xx`; None: nothing was."""
    noise_xy: Array | None

    @classmethod
    def of(
        cls, gram: Array, noise: float | Array, rows: int, regressors: Places, labels: Places, constant: int
    ) -> CentredSums:
        """Cut out of one Gram matrix, whose column `constant` is 1 in every row."""
        if not np.isfinite(gram).all():
            raise RunError("blind training: the sums are not finite; a party's features are too large")
        sums = (gram[constant] + gram[:, constant]) / 2
        means, label_means = sums[regressors] / rows, sums[labels] / rows
        xx = gram[np.ix_(regressors, regressors)] - rows * np.outer(means, means)
        xy = gram[np.ix_(regressors, labels)]
        yy = gram[np.ix_(labels, labels)] - rows * np.outer(label_means, label_means)
        xx = (xx + xx.T) / 2
        spread = np.broadcast_to(np.asarray(noise, np.float64), gram.shape) ** 2
        noisy = bool((spread[np.ix_(regressors, regressors)] > 0).any())
        return cls(
            rows,
            means,
            label_means,
            sums[labels],
            _positive(xx) if noisy else xx,
            xy - rows * np.outer(means, label_means),
            yy,
            xy,
            spread[np.ix_(regressors, regressors)] if noisy else None,
            spread[np.ix_(regressors, labels)] if noisy else None,
        )


def _positive(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix: noise can make a sum of squares negative."""
    values, vectors = np.linalg.eigh(matrix)
    projected: Array = (vectors * np.maximum(values, 0)) @ vectors.T
    return projected


@dataclass(frozen=True)
class RidgeFit:
    """A solved ridge."""

    weights: Array
    """(p, k)"""
    ridge: float
    """λ a row: n·ridge is added to the diagonal of the sums."""
    degrees: float
    """Effective parameters, the constant not counted."""
    residual: float
    """Sum of squares over rows and outputs, of the training rows."""
    criterion: float
    """Generalised cross-validation: the mean square error that new rows should have, all outputs together."""


class _Spectrum:
    """The sums in the eigenvectors of `xx`, where every strength costs one division."""

    def __init__(self, sums: CentredSums) -> None:
        self.sums = sums
        values, self.vectors = np.linalg.eigh(sums.xx)
        # What rounding leaves of a column that depends on others must not be divided by.
        self.values = np.where(values > 1e-12 * max(float(values[-1]), 0.0), values, 0.0)
        self.xy = self.vectors.T @ sums.xy
        self.total = float(np.trace(sums.yy))

    def fit(self, ridge: float) -> RidgeFit:
        n, added = self.sums.rows, self.sums.rows * ridge
        inverse = np.divide(1, self.values + added, out=np.zeros_like(self.values), where=self.values + added > 0)
        turned = self.xy * inverse[:, None]
        weights = self.vectors @ turned
        explained = 2 * float((turned * self.xy).sum()) - float((self.values[:, None] * turned**2).sum())
        residual = self.total - explained
        degrees = float((self.values * inverse).sum())
        honest = max(residual, 0.0) + self._optimism(weights, inverse)
        left = 1 - (degrees + 1) / n
        criterion = honest / n / left**2 if left > 0 else np.inf
        return RidgeFit(weights, ridge, degrees, residual, criterion)

    def _optimism(self, weights: Array, inverse: Array) -> float:
        """By how much the added noise makes the residual look too small, by Stein's lemma.

        With x'x + E and x'y + e in place of x'x and x'y, wᵀ(x'x)w − 2wᵀ(x'y) differs from what is computed by
        −wᵀEw + 2wᵀe. The weights follow the noise: dw = A(de − dE w) with A = (x'x + λ)⁻¹. So the expectation of wᵀe is
        Σᵢ var(eᵢ) Aᵢᵢ, and that of wᵀEw is −2 Σᵢⱼ var(Eᵢⱼ) (Aᵢᵢ wⱼ² + Aᵢⱼ wᵢ wⱼ), with half of it on the diagonal.
        """
        noise_xx, noise_xy = self.sums.noise_xx, self.sums.noise_xy
        if noise_xx is None or noise_xy is None:
            return 0.0
        inverse_matrix = (self.vectors * inverse) @ self.vectors.T
        diagonal = np.diag(inverse_matrix)
        halved = noise_xx * (1 - 0.5 * np.eye(len(noise_xx)))
        squares, products = (weights**2).sum(1), weights @ weights.T
        quadratic = diagonal @ halved @ squares + float((halved * inverse_matrix * products).sum())
        return float(2 * quadratic + 2 * (noise_xy * diagonal[:, None]).sum())


def solve(sums: CentredSums, ridge: float | Literal["gcv"]) -> RidgeFit:
    """The ridge of this strength, or of the one that generalised cross-validation likes best."""
    spectrum = _Spectrum(sums)
    if ridge != "gcv":
        return spectrum.fit(float(ridge))
    tried = [spectrum.fit(float(strength)).criterion for strength in GRID]
    best = int(np.argmin(tried))
    if not np.isfinite(tried[best]):
        raise RunError("blind training: there are fewer rows than features; take fewer features or set blind.ridge")
    fine = np.geomspace(GRID[max(best - 1, 0)], GRID[min(best + 1, len(GRID) - 1)], 15)
    return min((spectrum.fit(float(strength)) for strength in fine), key=lambda fit: fit.criterion)
