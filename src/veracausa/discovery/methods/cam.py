"""CAM (Bühlmann, Peters and Ernest 2014): additive noise models, each cause by a smooth function of its own.

Three steps: likely neighbours of each column, an order by adding the edge that raises the likelihood most, and a test
of every edge that the order leaves. Our own code, with cubic splines by least squares in place of penalised ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.methods import method

RIDGE = 1e-6
"""Of a spline's sums, for functions that nearly follow from each other."""


@method("cam")
@dataclass(kw_only=True, eq=False, repr=False)
class CAM(CausalDiscovery):
    """Strength = the share of a column's remaining variance that a cause explains, given the other causes."""

    threshold: Threshold = 0.0
    functions: int = 8
    """So many functions a column, fewer where rows are few."""
    neighbours: int = 10
    """At most so many columns are tried as causes of one."""
    alpha: float = 0.001
    """An edge stays if an F-test at this level finds its functions of use."""

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        fits = AdditiveFits(data.values, self.functions)
        likely = self._likely(fits, time_is_up)
        causes = self._ordered(fits, likely, time_is_up)
        if time_is_up():
            self.notes_ += ("cam: out of time; the edges that were added so far, pruned",)
        return self._pruned(fits, causes)

    def _likely(self, fits: AdditiveFits, time_is_up: Callable[[], bool]) -> Mask:
        """The columns that help most to predict each, by forward selection."""
        d = fits.d
        likely = ~np.eye(d, dtype=bool)
        if d - 1 <= self.neighbours:
            return likely
        for target in range(d):
            taken: list[int] = []
            while len(taken) < self.neighbours and not time_is_up():
                left = {
                    other: fits.left(target, [*taken, other]) for other in range(d) if other not in (*taken, target)
                }
                best = min(left, key=lambda other: left[other])
                if left[best] >= fits.left(target, taken):
                    break
                taken.append(best)
            likely[:, target] = False
            likely[taken, target] = True
        return likely

    def _ordered(self, fits: AdditiveFits, likely: Mask, time_is_up: Callable[[], bool]) -> list[list[int]]:
        """Each column's causes: of edges that close no cycle the best is added, until none raises the likelihood."""
        d = fits.d
        causes: list[list[int]] = [[] for _ in range(d)]
        reaches = np.eye(d, dtype=bool)
        gain = np.full((d, d), -np.inf)

        def weigh(target: int) -> None:
            now = np.log(fits.left(target, causes[target]))
            for cause in np.flatnonzero(likely[:, target] & ~reaches[target]):
                gain[cause, target] = now - np.log(fits.left(target, [*causes[target], int(cause)]))

        for target in range(d):
            weigh(target)
        while not time_is_up():
            gain[reaches.T] = -np.inf  # an effect's causes can not be its effects
            cause, target = divmod(int(gain.argmax()), d)
            if gain[cause, target] <= 0:
                break
            causes[target].append(cause)
            reaches |= np.outer(reaches[:, cause], reaches[target])
            gain[:, target] = -np.inf
            likely[cause, target] = False
            weigh(target)
        return causes

    def _pruned(self, fits: AdditiveFits, causes: list[list[int]]) -> Array:
        from scipy.stats import f as f_distribution

        strengths = np.zeros((fits.d, fits.d))
        for target, all_causes in enumerate(causes):
            whole, used = fits.squares(target, all_causes)
            freedom = max(fits.rows - 1 - used, 1)
            for cause in all_causes:
                part, fewer = fits.squares(target, [other for other in all_causes if other != cause])
                better = max(part - whole, 0.0) / (used - fewer) / (whole / freedom)
                if f_distribution.sf(better, used - fewer, freedom) < self.alpha:
                    strengths[cause, target] = 1 - whole / part
        return strengths


class AdditiveFits:
    """Regressions of columns on smooth functions of others, from sums of products alone."""

    def __init__(self, values: Array, functions: int) -> None:
        self.rows, self.d = values.shape
        most = max(1, min(functions, self.rows // 20))
        blocks = [spline(column, most) for column in values.T]
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
        self.places = [np.arange(ends[at], ends[at + 1]) for at in range(self.d)]
        table = np.column_stack(blocks)
        centred = values - values.mean(axis=0)
        self.inside = table.T @ table / self.rows
        self.inside[np.diag_indices_from(self.inside)] += RIDGE
        self.across = table.T @ centred / self.rows
        self.variance = np.maximum((centred**2).mean(axis=0), 1e-12)

    def squares(self, target: int, causes: list[int]) -> tuple[float, int]:
        """What is left of a column's variance given its causes, and how many functions they have."""
        if not causes:
            return float(self.variance[target]), 0
        index = np.concatenate([self.places[cause] for cause in causes])
        across = self.across[index, target]
        found = np.linalg.solve(self.inside[np.ix_(index, index)], across)
        whole = float(self.variance[target])
        return max(whole - float(across @ found), 1e-12 * whole), len(index)

    def left(self, target: int, causes: list[int]) -> float:
        """The same without bias: functions that say nothing lower it on average by nothing."""
        squares, used = self.squares(target, causes)
        return float(squares * self.rows / max(self.rows - 1 - used, 1))


def spline(column: Array, functions: int) -> Array:
    """Centred cubic B-splines of a column with knots at its quantiles; one level a value where values are few."""
    from scipy.interpolate import BSpline

    values = np.unique(column)
    if len(values) <= functions + 1:
        made = (column[:, None] == values[None, 1:]).astype(float)
        return np.asarray(made - made.mean(axis=0))
    degree = min(3, functions)
    inner = np.unique(np.quantile(column, np.linspace(0, 1, functions - degree + 2)[1:-1]))
    inner = inner[(inner > values[0]) & (inner < values[-1])]
    knots = np.concatenate([[values[0]] * (degree + 1), inner, [values[-1]] * (degree + 1)])
    made = BSpline.design_matrix(column, knots, degree).toarray()[:, 1:]  # all of them add up to one
    scale = made.std(axis=0)
    return np.asarray((made - made.mean(axis=0)) / np.where(scale > 0, scale, 1))
