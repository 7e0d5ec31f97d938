"""Directions of straight lines by noise that is not normal, from third and fourth moments of pairs of columns.

If x = A·e with independent noise e, the cumulants of a pair follow from A and from one number a noise:
cum(x_i, x_i, x_j) = Σ_k A_ik² A_jk s_k, with s_k the skewness of noise k; and so on with fourth ones. A wrong order has
another A, and its cumulants do not fit. Sums over rows of x_i², x_i³ and x_j are all that is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.discovery.methods.moments.regressions import Parents, tempered
from veracausa.discovery.methods.moments.sums import SumTable

RIDGE = 1e-9
THIRD, THREE_ONE, TWO_TWO = 3.0, 9.0, 6.0
"""Variances of these cumulants times the rows, of normal columns that are moderately correlated."""
Index = NDArray[np.intp]


@dataclass(frozen=True)
class PairCumulants:
    """Observed cumulants of pairs of standardised numbers, in deviations that normal columns would have."""

    numbers: Index
    """Positions of the columns that are numbers. Others have no part in it."""
    third: Array
    """(m, m): cum(i, i, j)."""
    three_one: Array
    """(m, m): cum(i, i, i, j)."""
    two_two: Array
    """(m, m): cum(i, i, j, j), without its diagonal, which is that of `three_one`."""
    tails: Array
    """(m,): by how much a column's long tails blur its cumulants."""
    rows: float
    """That count, see `tempered`."""

    @classmethod
    def of(cls, sums: SumTable) -> PairCumulants:
        numbers = np.flatnonzero(np.isfinite(sums.square.diagonal()))
        inside = np.ix_(numbers, numbers)
        rho = np.clip(sums.correlations[inside], -1, 1)
        three_one = sums.cube[inside] - 3 * rho
        two_two = sums.squares[inside] - 1 - 2 * rho**2
        np.fill_diagonal(two_two, 0.0)
        tails = 1 + np.maximum(three_one.diagonal(), 0.0)
        rows = float(tempered(np.array([np.min(sums.counts[inside], initial=sums.rows)]))[0])
        return cls(numbers, sums.square[inside], three_one, two_two, tails, rows)

    @property
    def size(self) -> int:
        """How many cumulants are compared."""
        m = len(self.numbers)
        return 2 * m * m + m * (m - 1) // 2

    def misfit(self, mixing: Array | None) -> float:
        """What independent noise behind this mixing matrix (x = A·e) leaves of the cumulants, in squared deviations.

        None: as if all noise were normal, so that every cumulant should be 0.
        """
        # Weights are products of one number a column, so that a sum over pairs is a product of two small matrices.
        one = self.tails**-0.25
        first = self._left(mixing, (2, 1), self.third, one, one, self.rows / THIRD)
        two = self.tails**-0.5
        return first + self._fourth(mixing, two)

    def _left(
        self, mixing: Array | None, powers: tuple[int, int], seen: Array, u: Array, v: Array, unit: float
    ) -> float:
        total = unit * float(np.sum(np.square(u[:, None] * seen * v[None, :])))
        if mixing is None:
            return total
        a, b = u[:, None] * mixing ** powers[0], v[:, None] * mixing ** powers[1]
        gram = (a.T @ a) * (b.T @ b)
        cross = np.einsum("ik,ij,jk->k", a, u[:, None] * seen * v[None, :], b, optimize=True)
        return total - unit * _explained(gram, cross)

    def _fourth(self, mixing: Array | None, u: Array) -> float:
        scaled = u[:, None] * u[None, :]
        s31, s22 = self.three_one * scaled, self.two_two * scaled
        w31, w22 = self.rows / THREE_ONE, self.rows / TWO_TWO / 2  # pairs (i, j) and (j, i) are one
        total = w31 * float(np.sum(s31**2)) + w22 * float(np.sum(s22**2))
        if mixing is None:
            return total
        three, one, two = (u[:, None] * mixing**power for power in (3, 1, 2))
        own = (u[:, None] ** 2) * mixing**4
        gram = w31 * (three.T @ three) * (one.T @ one) + w22 * (np.square(two.T @ two) - own.T @ own)
        cross = w31 * np.einsum("ik,ij,jk->k", three, s31, one, optimize=True)
        cross = cross + w22 * np.einsum("ik,ij,jk->k", two, s22, two, optimize=True)
        return total - _explained(gram, cross)


def _explained(gram: Array, cross: Array) -> float:
    """What a regression with these normal equations explains."""
    gram = gram + RIDGE * np.trace(gram) * np.eye(len(gram))
    return float(cross @ np.linalg.solve(gram, cross))


def mixing_matrix(sums: SumTable, parents: tuple[Parents, ...], numbers: Index) -> Array:
    """A of x = A·e, from regressions of each number on its parents; straight lines alone."""
    place = {int(at): k for k, at in enumerate(numbers)}
    rho = sums.correlations
    lines = np.eye(len(numbers))
    for effect, causes in enumerate(parents):
        inside = [cause for cause, _ in causes if cause in place]
        if effect not in place or not inside:
            continue
        gram = rho[np.ix_(inside, inside)] + RIDGE * np.eye(len(inside))
        slopes = np.linalg.solve(gram, rho[inside, effect])
        lines[place[effect], [place[cause] for cause in inside]] = -slopes
    return np.asarray(np.linalg.inv(lines), dtype=np.float64)
