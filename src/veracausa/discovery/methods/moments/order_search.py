"""The order of columns that explains them best: one column at a time moves to its best place, from several starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from veracausa.arrays import Mask
from veracausa.discovery.methods.moments.regressions import Parents, Regressions

TINY = 1e-6
PASSES = 30


@dataclass(frozen=True)
class Ordering:
    """An order with the parents that it leads to."""

    order: tuple[int, ...]
    score: float
    parents: tuple[Parents, ...]
    """By column."""

    @property
    def adjacency(self) -> Mask:
        graph = np.zeros((len(self.parents),) * 2, dtype=bool)
        for effect, causes in enumerate(self.parents):
            for cause, _ in causes:
                graph[cause, effect] = True
        return graph


@dataclass
class OrderSearch:
    """A search under what is known of the graph: edges that may not be, and columns that come before others."""

    regressions: Regressions
    may: Mask
    """(d, d): row may cause column."""
    before: Mask
    """(d, d): row stands before column in every order."""
    time_is_up: Callable[[], bool] = lambda: False
    _may_bits: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._may_bits = [sum(1 << int(i) for i in np.flatnonzero(column)) for column in self.may.T]

    def local(self, column: int, earlier: int) -> float:
        return self.regressions.best(column, earlier & self._may_bits[column])[0]

    def evaluated(self, order: Sequence[int]) -> Ordering:
        earlier, total = 0, 0.0
        parents: list[Parents] = [()] * len(order)
        for column in order:
            score, parents[column] = self.regressions.best(column, earlier & self._may_bits[column])
            total += score
            earlier |= 1 << column
        return Ordering(tuple(order), total, tuple(parents))

    def improved(self, order: Sequence[int], rng: np.random.Generator) -> Ordering:
        """The order after moves of single columns that each raise the score, until none does."""
        order = list(order)
        for _ in range(PASSES):
            moved = False
            for column in rng.permutation(len(order)).tolist():
                if self.time_is_up():
                    return self.evaluated(order)
                better = self._best_place(order, column)
                if better is not None:
                    order, moved = better, True
            if not moved:
                break
        return self.evaluated(order)

    def _best_place(self, order: list[int], column: int) -> list[int] | None:
        """The order with this column where it raises the score most; None: it stands there already."""
        others = [one for one in order if one != column]
        bit = 1 << column
        earlier = 0
        own, with_it, without = [], [], []
        for one in others:
            own.append(self.local(column, earlier))
            without.append(self.local(one, earlier))
            with_it.append(self.local(one, earlier | bit))
            earlier |= 1 << one
        own.append(self.local(column, earlier))
        # At place p, those before p do without the column, and those from p on may have it as a cause.
        totals = np.array(own)
        totals += np.concatenate([[0.0], np.cumsum(without)])
        totals += np.concatenate([np.cumsum(with_it[::-1])[::-1], [0.0]])
        first = max((p + 1 for p, one in enumerate(others) if self.before[one, column]), default=0)
        last = min((p for p, one in enumerate(others) if self.before[column, one]), default=len(others))
        now = order.index(column)
        allowed = totals[first : last + 1]
        best = first + int(allowed.argmax())
        if totals[best] <= totals[now] + TINY:
            return None
        return [*others[:best], column, *others[best:]]

    def start(self, rng: np.random.Generator) -> list[int]:
        """A random order that keeps to what is known."""
        left, order = set(range(len(self.may))), []
        while left:
            free = [one for one in sorted(left) if not any(self.before[other, one] for other in left)]
            order.append(int(rng.choice(free)))
            left.remove(order[-1])
        return order

    def greedy(self) -> list[int]:
        """Columns by how little the others explain them: sinks are put last, one after the other."""
        left, order = set(range(len(self.may))), []
        while left:
            everybody = sum(1 << one for one in left)
            free = [one for one in sorted(left) if not any(self.before[one, other] for other in left)]
            # Without a column as a cause of the others, what does the best graph of these lose?
            scores = {one: self.local(one, everybody & ~(1 << one)) - self.local(one, 0) for one in free}
            sink = max(scores, key=lambda one: scores[one])
            order.append(sink)
            left.remove(sink)
        return order[::-1]


def searched(
    search: OrderSearch, starts: int, rng: np.random.Generator, given: Sequence[Sequence[int]] = ()
) -> list[Ordering]:
    """The orders that several starts lead to, the best first."""
    found = [search.improved(order, rng) for order in given]
    found.append(search.improved(search.greedy(), rng))
    while len(found) < starts and not search.time_is_up():
        found.append(search.improved(search.start(rng), rng))
    return sorted(found, key=lambda one: -one.score)
