"""BOSS (Andrews et al. 2023): the best order of the columns by moves of one column, scored by a linear Gaussian BIC.

Each column's causes are grown and shrunk among those before it. What was grown is kept in a tree, so that most orders
cost a few look-ups. It tells a class of graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.linear_fits import coefficients, covariance_of
from veracausa.discovery.methods import method
from veracausa.metrics.cpdag import cpdag
from veracausa.seeding import derive

LEAST = 1e-6
"""A move must be better by so much."""


@method("boss")
@dataclass(kw_only=True, eq=False, repr=False)
class BOSS(CausalDiscovery):
    """Strength = |coefficient| of least squares on a column's causes in one DAG of the class."""

    threshold: Threshold = 0.0
    penalty: float = 2.0
    """The BIC's penalty a cause, in halves of log(rows); its authors use 2."""
    starts: int = 5
    """So many random orders to start from; the best end is kept."""

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        covariance, rows = covariance_of(data.values), len(data.values)
        d = len(covariance)
        trees = [GrowShrinkTree(node, covariance, rows, self.penalty) for node in range(d)]
        rng = np.random.default_rng(derive(self.seed, "boss"))
        best, reached = list(range(d)), -np.inf
        for _ in range(max(1, self.starts)):
            order = [int(node) for node in rng.permutation(d)]
            score = self._climb(order, trees, rng, time_is_up)
            if score > reached:
                best, reached = order, score
            if time_is_up():
                break
        dag = np.zeros((d, d), dtype=bool)
        for place, node in enumerate(best):
            dag[trees[node].causes(frozenset(best[:place]))[1], node] = True
        self._open = cpdag(dag)[1]
        return coefficients(covariance, dag)

    def _climb(
        self,
        order: list[int],
        trees: list[GrowShrinkTree],
        rng: np.random.Generator,
        time_is_up: Callable[[], bool],
    ) -> float:
        """Move columns, each to its best place, until none is better anywhere; the order is changed in place."""
        improved = True
        while improved and not time_is_up():
            improved = False
            for node in rng.permutation(len(order)):
                if time_is_up():
                    self.notes_ += ("boss: out of time; the best order so far",)
                    break
                improved |= _move(int(node), order, trees)
        return sum(trees[node].causes(frozenset(order[:place]))[0] for place, node in enumerate(order))


def _move(node: int, order: list[int], trees: list[GrowShrinkTree]) -> bool:
    """Put one column to its best place; whether that was another one."""
    others = [other for other in order if other != node]
    count = len(others)
    own, before, after = np.zeros(count + 1), np.zeros(count + 1), np.zeros(count + 1)
    prefix: frozenset[int] = frozenset()
    for place, other in enumerate(others):
        own[place] = trees[node].causes(prefix)[0]
        before[place + 1] = before[place] + trees[other].causes(prefix)[0]
        after[place] = trees[other].causes(prefix | {node})[0]
        prefix |= {other}
    own[count] = trees[node].causes(prefix)[0]
    scores = own + before + after[::-1].cumsum()[::-1]
    now, best = order.index(node), int(scores.argmax())
    if scores[best] <= scores[now] + LEAST:
        return False
    order[:] = [*others[:best], node, *others[best:]]
    return True


class GrowShrinkTree:
    """The causes that one column takes among those allowed: the best is added as long as the score grows, then
    those are taken away without which it grows again. A branch remembers what was added along it."""

    def __init__(self, target: int, covariance: Array, rows: int, penalty: float) -> None:
        self.target, self.covariance, self.rows = target, covariance, rows
        self.price = penalty / 2 * np.log(rows)
        self.everyone = [other for other in range(len(covariance)) if other != target]
        self.grown: dict[tuple[int, ...], list[int]] = {}
        self.shrunk: dict[tuple[int, ...], tuple[float, list[int]]] = {}

    def score(self, causes: list[int]) -> float:
        """The log-likelihood of a linear Gaussian regression, and the price of its causes."""
        left = float(self.covariance[self.target, self.target])
        if causes:
            inside = self.covariance[np.ix_(causes, causes)]
            across = self.covariance[causes, self.target]
            try:
                left -= float(across @ np.linalg.solve(inside, across))
            except np.linalg.LinAlgError:
                left -= float(across @ np.linalg.lstsq(inside, across, rcond=None)[0])
        return float(-0.5 * self.rows * np.log(max(left, 1e-12)) - self.price * len(causes))

    def causes(self, allowed: frozenset[int]) -> tuple[float, list[int]]:
        """The score and the causes among those allowed."""
        taken: tuple[int, ...] = ()
        while True:
            if taken not in self.grown:
                self.grown[taken] = self._grow(taken)
            step = next((other for other in self.grown[taken] if other in allowed), None)
            if step is None:
                break
            taken = (*taken, step)
        if taken not in self.shrunk:
            self.shrunk[taken] = self._shrink(list(taken))
        return self.shrunk[taken]

    def _grow(self, taken: tuple[int, ...]) -> list[int]:
        """Which columns make the score better, the best first."""
        now = self.score(list(taken))
        scores = {other: self.score([*taken, other]) for other in self.everyone if other not in taken}
        better = [other for other, score in scores.items() if score > now]
        return sorted(better, key=lambda other: -scores[other])

    def _shrink(self, taken: list[int]) -> tuple[float, list[int]]:
        reached = self.score(taken)
        while taken:
            score, worst = max((self.score([c for c in taken if c != other]), other) for other in taken)
            if score <= reached:
                break
            reached = score
            taken = [c for c in taken if c != worst]
        return reached, taken
