"""From sums to a graph: the linear and the additive model, which of them the sums support, and what stays open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.order_search import Ordering, OrderSearch, searched
from veracausa.discovery.methods.moments.regressions import Regressions
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.moments.sums import SumTable


@dataclass(frozen=True)
class Known:
    """What is known of the graph before any row is looked at."""

    required: Mask
    forbidden: Mask
    tiers: Sequence[int] | None = None
    """(d,): no column causes one of an earlier tier."""

    @classmethod
    def nothing(cls, d: int) -> Known:
        none = np.zeros((d, d), dtype=bool)
        return cls(none, none)

    @property
    def may(self) -> Mask:
        """(d, d): row may cause column."""
        may = ~self.forbidden & ~np.eye(len(self.required), dtype=bool)
        if self.tiers is not None:
            tier = np.asarray(self.tiers)
            may &= tier[:, None] <= tier[None, :]
        return may

    @property
    def before(self) -> Mask:
        """(d, d): row stands before column in every order."""
        before = self.required.copy()
        if self.tiers is not None:
            tier = np.asarray(self.tiers)
            before |= tier[:, None] < tier[None, :]
        for _ in range(len(before)):
            longer = before | ((before.astype(float) @ before) > 0)
            if (longer == before).all():
                break
            before = longer
        return before


def search_sums(
    sums: SumTable,
    settings: SumsSettings,
    known: Known | None = None,
    rng: np.random.Generator | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> SumsFound:
    """The graph that the sums support best."""
    d = sums.d
    known = known or Known.nothing(d)
    rng = rng or np.random.default_rng(0)
    regressions = Regressions(
        sums, penalty=settings.penalty, min_gain=settings.min_effect, required=known.required
    )
    search = OrderSearch(regressions, known.may, known.before, time_is_up)
    best = searched(search, settings.starts, rng)
    return _found(sums, regressions, best)


def _found(sums: SumTable, regressions: Regressions, best: Ordering) -> SumsFound:
    d = sums.d
    adjacency = best.adjacency
    none = np.zeros((d, d))
    explained = np.array([1 - np.exp(regressions.regression(j, best.parents[j]).left) for j in range(d)])
    strengths: Array = none.copy()
    for effect, parents in enumerate(best.parents):
        left = regressions.regression(effect, parents).left
        for cause, _ in parents:
            others = tuple(one for one in parents if one[0] != cause)
            without = regressions.regression(effect, others).left
            strengths[cause, effect] = np.sqrt(max(np.exp(without) - np.exp(left), 0.0))
    return SumsFound(
        adjacency,
        np.zeros((d, d), dtype=bool),
        strengths,
        none.copy(),
        none.copy(),
        none.copy(),
        explained,
        "additive",
        best.order,
        {"additive": best.score},
    )
