"""Ridge regression from centred sums: its strength by generalised cross-validation, also of sums with noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.errors import RunError

Places = NDArray[np.int64]

GRID = np.logspace(-9, 3, 73)
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
    noise_xx: Array | None
    """(p, p) variances of what was added to `xx`; None: nothing was."""
    noise_xy: Array | None

    @classmethod
    def of(
        cls, gram: Array, noise: float | Array, rows: int, regressors: Places, own: int, labels: Places, constant: int
    ) -> CentredSums:
        """Cut out of one Gram matrix. Its column `constant` is 1 in every row that the active party lets in.

        Of rows that it leaves out, other parties' products among themselves are still there, as if the active party
        had zeros in these rows. So the whole matrix remains one of sums of squares, and no error is below zero. The
        first `own` regressors are the active party's.
        """
        if not np.isfinite(gram).all():
            raise RunError("blind training: the sums are not finite; a party's features are too large")
        kept = float(gram[constant, constant])
        if not 0.5 * rows < kept < 1.5 * rows:
            raise RunError("blind training: the sums say of few rows that they take part; the constant column is wrong")
        total, rows = rows, round(kept)
        sums = (gram[constant] + gram[:, constant]) / 2
        means, label_means = sums[regressors] / rows, sums[labels] / rows
        xx = gram[np.ix_(regressors, regressors)] - rows * np.outer(means, means)
        xy = gram[np.ix_(regressors, labels)]
        yy = gram[np.ix_(labels, labels)] - rows * np.outer(label_means, label_means)
        xx = (xx + xx.T) / 2
        # Rows that are left out can give another party's constant column a covariance. It has none.
        squares = np.diag(gram)[regressors]
        counted = np.where(np.arange(len(regressors)) < own, rows, total)
        flat = squares / counted - means**2 <= 1e-9 * squares
        xx[flat] = xx[:, flat] = 0
        spread = np.broadcast_to(np.asarray(noise, np.float64), gram.shape) ** 2
        noisy = bool((spread[np.ix_(regressors, regressors)] > 0).any())
        return cls(
            rows,
            means,
            label_means,
            sums[labels],
            _positive(xx) if noisy or rows != total else xx,
            xy - rows * np.outer(means, label_means),
            yy,
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
    """A solved ridge, and what its outputs Wᵀx should do on other rows."""

    weights: Array
    """(p, k)"""
    ridge: float
    """λ a row: n·ridge is added to the diagonal of the sums."""
    degrees: float
    """Effective parameters, the constant not counted."""
    residual: float
    """Sum of squares over rows and outputs, of the training rows; of sums with noise an estimate."""
    criterion: float
    """The mean square error that new rows should have, all outputs together: what the strength is chosen by."""
    scatter: Array
    """(k, k): Wᵀ x'x W without what noise does to it."""
    agreement: Array
    """(k, k): Wᵀ x'y without what noise and fitting do to it."""
    doubt: float = 0.0
    """How large what is left of the noise in `scatter` can be, as a matrix norm."""


class _Spectrum:
    """The sums in the eigenvectors of `xx`, where every strength costs one division."""

    def __init__(self, sums: CentredSums) -> None:
        self.sums = sums
        values, self.vectors = np.linalg.eigh(sums.xx)
        # What rounding leaves of a column that depends on others must not be divided by.
        self.values = np.where(values > 1e-12 * max(float(values[-1]), 0.0), values, 0.0)
        self.xy = self.vectors.T @ sums.xy
        self.noisy = sums.noise_xx is not None

    @property
    def edge(self) -> float:
        """The largest eigenvalue that noise alone has, about; 0 without noise."""
        noise = self.sums.noise_xx
        return 0.0 if noise is None else 2 * float(np.sqrt(noise.mean() * len(noise)))

    def fit(self, ridge: float, least: float = 0.0) -> RidgeFit:
        """The ridge of this strength, on the directions of x that have at least this eigenvalue."""
        n, added = self.sums.rows, self.sums.rows * ridge
        inverse = np.divide(
            1,
            self.values + added,
            out=np.zeros_like(self.values),
            where=(self.values + added > 0) & (self.values >= least),
        )
        turned = self.xy * inverse[:, None]
        weights = self.vectors @ turned
        scatter = turned.T @ (self.values[:, None] * turned)
        agreement = turned.T @ self.xy
        agreement = (agreement + agreement.T) / 2
        degrees = float((self.values * inverse).sum())
        if self.noisy:
            scatter, agreement = self._without_noise(weights, inverse, scatter, agreement)
        left = max(1 - (degrees + 1) / n, 0.0)
        errors = self.sums.yy - 2 * agreement + scatter
        residual = float(np.trace(errors))
        # Fitting raises the agreement of training rows by the degrees of freedom times the rows' error variance.
        honest = _positive(agreement - degrees * errors / (n * left)) if left else np.zeros_like(agreement)
        if self.noisy:
            return self._stretched(RidgeFit(weights, ridge, degrees, residual, np.inf, scatter, honest))
        criterion = max(residual, 0.0) / n / left**2 if left else np.inf
        return RidgeFit(weights, ridge, degrees, residual, criterion, scatter, honest)

    def _without_noise(self, weights: Array, inverse: Array, scatter: Array, agreement: Array) -> tuple[Array, Array]:
        """What WᵀCW and Wᵀc are of sums C and c without noise, by Stein's lemma, from sums C + E and c + e with it.

        The weights follow the noise: dw = A(de − dE·w) with A = (C + E + λ)⁻¹. So the expectation of wₐᵀe_b is
        Σᵢ var(eᵢ) Aᵢᵢ for a = b and 0 otherwise, and that of wₐᵀEw_b is −2 Σᵢⱼ Sᵢⱼ (Aᵢᵢ wₐⱼ w_bⱼ + Aᵢⱼ wₐᵢ w_bⱼ). S
        are the variances of E, on the diagonal half of them.
        """
        assert self.sums.noise_xx is not None
        assert self.sums.noise_xy is not None
        matrix = (self.vectors * inverse) @ self.vectors.T
        halved = self.sums.noise_xx * (1 - 0.5 * np.eye(len(matrix)))
        own = weights.T @ ((np.diag(matrix) @ halved)[:, None] * weights)
        mixed = weights.T @ (halved * matrix) @ weights
        return scatter + 2 * own + mixed + mixed.T, agreement - np.diag(np.diag(matrix) @ self.sums.noise_xy)

    def _stretched(self, fit: RidgeFit) -> RidgeFit:
        """With noise λ is large and shrinks the outputs: they are stretched by the factor that fits the labels best."""
        agreement, scatter = float(np.trace(fit.agreement)), float(np.trace(fit.scatter))
        factor = max(agreement, 0.0) / scatter if scatter > 0 else 0.0
        error = float(np.trace(self.sums.yy)) - factor * max(agreement, 0.0)
        return replace(
            fit,
            weights=factor * fit.weights,
            residual=error,
            criterion=error / self.sums.rows,
            scatter=factor**2 * fit.scatter,
            agreement=factor * fit.agreement,
            doubt=factor**2 * self._doubt(fit.weights),
        )

    def _doubt(self, weights: Array) -> float:
        """The norm that a Gaussian matrix WᵀEW of k × k has, about: 2√k times its entries' deviation."""
        assert self.sums.noise_xx is not None
        deviation = float(np.sqrt(self.sums.noise_xx.max()))
        return 2 * float(np.sqrt(weights.shape[1])) * deviation * float(np.linalg.norm(weights, 2)) ** 2


def solve(sums: CentredSums, ridge: float | Literal["gcv"]) -> RidgeFit:
    """The ridge of this strength, or of the one that generalised cross-validation likes best.

    Of sums with noise, the strength is the one whose outputs should explain most of the labels on sums without noise.
    """
    spectrum = _Spectrum(sums)
    if ridge != "gcv":
        return spectrum.fit(float(ridge))
    found = [_best(spectrum, least) for least in sorted({0.0, spectrum.edge})]
    return min(found, key=lambda fit: fit.criterion)


def _best(spectrum: _Spectrum, least: float) -> RidgeFit:
    tried = [spectrum.fit(float(strength), least).criterion for strength in GRID]
    best = int(np.argmin(tried))
    if not np.isfinite(tried[best]):
        raise RunError("blind training: there are fewer rows than features; take fewer features or set blind.ridge")
    fine = np.geomspace(GRID[max(best - 1, 0)], GRID[min(best + 1, len(GRID) - 1)], 15)
    return min((spectrum.fit(float(strength), least) for strength in fine), key=lambda fit: fit.criterion)
