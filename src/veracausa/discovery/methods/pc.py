"""PC (Spirtes and Glymour 1991), in its order-independent form (Colombo and Maathuis 2014), with Fisher's z-test.

It tells a class of graphs, and assumes that dependences are linear and that no cause is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.linear_fits import coefficients, covariance_of
from veracausa.discovery.methods import method
from veracausa.metrics.cpdag import dag_of, meek


@method("pc")
@dataclass(kw_only=True, eq=False, repr=False)
class PC(CausalDiscovery):
    """Strength = |coefficient| of least squares on a column's causes in one DAG of the class."""

    threshold: Threshold = 0.0
    alpha: float = 0.01
    """Two columns are neighbours if no test at this level finds them independent."""
    largest: int | None = None
    """At most so many columns in a condition; default: as many as a column has neighbours."""

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        covariance = covariance_of(data.values)
        near, apart = self._neighbours(covariance, len(data.values), time_is_up)
        arrows, lines = meek(*_colliders(near, apart))
        self._open = lines
        dag = dag_of(arrows, lines)
        if dag is None:
            self.notes_ += ("pc: the tests contradict each other; cycles are broken at their weakest edge",)
            dag = arrows | lines
        return coefficients(covariance, dag)

    def _neighbours(
        self, covariance: Array, rows: int, time_is_up: Callable[[], bool]
    ) -> tuple[Mask, dict[tuple[int, int], tuple[int, ...]]]:
        from scipy.stats import norm

        d = len(covariance)
        needed = float(norm.isf(self.alpha / 2))
        near = ~np.eye(d, dtype=bool)
        apart: dict[tuple[int, int], tuple[int, ...]] = {}
        size = 0
        while size <= (d if self.largest is None else self.largest) and (near.sum(axis=0) > size).any():
            # The conditions of a size come from the neighbours at its beginning: no order of the columns matters.
            around = {node: [int(other) for other in np.flatnonzero(near[node])] for node in range(d)}
            for one, other in np.argwhere(np.triu(near, 1)):
                if time_is_up():
                    self.notes_ += (f"pc: out of time; conditions of up to {size} columns were tested",)
                    return near, apart
                for condition in _conditions(int(one), int(other), around, size):
                    z = abs(fisher_z(covariance, rows, int(one), int(other), condition))
                    if z < needed:
                        near[one, other] = near[other, one] = False
                        apart[int(one), int(other)] = condition
                        break
            size += 1
        return near, apart


def _conditions(one: int, other: int, around: dict[int, list[int]], size: int) -> list[tuple[int, ...]]:
    both = [combinations([c for c in around[a] if c != b], size) for a, b in ((one, other), (other, one))]
    return list(dict.fromkeys(condition for some in both for condition in some))


def fisher_z(covariance: Array, rows: int, one: int, other: int, condition: tuple[int, ...]) -> float:
    """Fisher's z of a partial correlation, standard normal where the two are independent given the condition."""
    index = [one, other, *condition]
    inverse = np.linalg.pinv(covariance[np.ix_(index, index)], hermitian=True)
    scale = np.sqrt(max(inverse[0, 0] * inverse[1, 1], 1e-300))
    partial = float(np.clip(-inverse[0, 1] / scale, -1 + 1e-12, 1 - 1e-12))
    return float(np.sqrt(max(rows - len(condition) - 3, 0)) * np.arctanh(partial))


def _colliders(near: Mask, apart: dict[tuple[int, int], tuple[int, ...]]) -> tuple[Mask, Mask]:
    """Edges into a node that did not part two of its neighbours; the first of two that contradict is kept."""
    arrows = np.zeros_like(near)
    for (one, other), condition in sorted(apart.items()):
        for middle in np.flatnonzero(near[one] & near[other]):
            if middle not in condition and not arrows[middle, one] and not arrows[middle, other]:
                arrows[one, middle] = arrows[other, middle] = True
    return arrows, near & ~(arrows | arrows.T)
