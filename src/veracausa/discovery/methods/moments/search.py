"""From sums to a graph: straight lines or curves, which of them the sums support, and what stays open.

The linear model comes first. Where the noise behind it is not normal, cumulants of pairs direct its edges. It is kept
if no curve explains more along its own order, and if curves in any other order gain little or independent noise behind
the lines explains nearly all of the cumulants. Otherwise curves are searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.graphs import reaches
from veracausa.discovery.methods.moments.cumulants import PairCumulants, mixing_matrix
from veracausa.discovery.methods.moments.found import Model, SumsFound
from veracausa.discovery.methods.moments.order_search import Ordering, OrderSearch, searched
from veracausa.discovery.methods.moments.regressions import Regressions
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.moments.sums import SumTable
from veracausa.metrics.cpdag import cpdag

NOT_NORMAL = 2.0
"""Cumulants so many times as large as those of normal columns say that noise is not normal."""
CHANCE = 0.3
"""Cumulants miss those of the right linear model by about so many times what independent normal ones would."""
MISFIT = 0.7
"""They may miss them by so many times that, or by `TAILED` of what they miss those of normal columns by."""
TAILED = 0.06
"""Long tails blur cumulants and make them large, so that a small share of them is more than chance."""
TOLD = 0.1
"""Beyond chance they may miss this share of what they miss those of normal columns by."""
CURVED = 5.0
"""Nats a column that curves may gain along the order of a linear model by chance."""
LITTLE = 1.0
"""Nats a column that curves may gain in an order of their own before the cumulants have to speak for lines.

Along a wrong order noise that is not normal looks like a curve, so that a gain alone proves nothing.
"""
SURE = 3.0
"""Nats by which a direction must be likelier than the other one to be drawn."""
SURE_BY_CUMULANTS = 5.0
LINEAR_STARTS = 3
"""Lines are quick to search for: so many times as many starts."""
HOPELESS = 40.0
"""So many times what chance explains, and no other order of lines will do."""
DOUBTFUL = 2.0
"""The same once cumulants have chosen the order."""
REFINED = 4
"""Orders that cumulants go on from."""
MULTIPLIED = 2
"""Orders that the search goes on from once products of causes count."""
TRUST = 0.125
"""Nats for a squared deviation of a cumulant: a quarter of what it were worth if they were independent and normal."""


@dataclass(frozen=True)
class Known:
    """What is known of the graph before any row is looked at."""

    required: Mask
    forbidden: Mask
    tiers: Sequence[float] | None = None
    """(d,): no column causes one of an earlier tier; nan: a column of no tier."""

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
            may &= ~(tier[:, None] > tier[None, :])
        return may

    @property
    def before(self) -> Mask:
        """(d, d): row stands before column in every order."""
        before = self.required.copy()
        if self.tiers is not None:
            tier = np.asarray(self.tiers)
            before |= tier[:, None] < tier[None, :]
        return reaches(before)


Total = Callable[[Ordering], float]
"""By what orders are compared."""


def search_sums(
    sums: SumTable,
    settings: SumsSettings,
    known: Known | None = None,
    rng: np.random.Generator | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> SumsFound:
    """The graph that the sums support best."""
    known = known or Known.nothing(sums.d)
    rng = rng or np.random.default_rng(0)
    price = {"penalty": settings.penalty, "min_gain": settings.min_effect, "required": known.required}

    def search(most: int | None) -> OrderSearch:
        return OrderSearch(Regressions(sums, most=most, **price), known.may, known.before, time_is_up)  # type: ignore[arg-type]

    curves = search(None)
    scores: dict[str, float] = {}
    if settings.model != "additive":
        lines = _lines(sums, search(1), curves, settings, rng, scores)
        if lines is not None:
            return lines
    orders = searched(curves, settings.starts, rng)
    curve = orders[0]
    if curves.regressions.may_multiply:
        curves.regressions.multiply()
        again = searched(curves, settings.starts + MULTIPLIED, rng, [one.order for one in _different(orders)])
        curves.regressions.multiply(thorough=True)
        curve = max((curves.evaluated(one.order) for one in _different(again)), key=_score)
        pairs = ((target, parents) for target, parents in enumerate(curve.parents) if len(parents) > 1)
        scores["products"] = sum(curves.regressions.interactions(*pair)[0] for pair in pairs)
    scores["additive"] = curve.score
    scores["without_powers"] = float(sum(node.kind == "number" and not node.powers for node in sums.nodes))
    return _found(sums, curves, curve, "additive", _score, scores)


def _lines(
    sums: SumTable,
    lines: OrderSearch,
    curves: OrderSearch,
    settings: SumsSettings,
    rng: np.random.Generator,
    scores: dict[str, float],
) -> SumsFound | None:
    """The graph of straight lines; None where the sums speak against it."""
    cumulants = PairCumulants.of(sums)
    normal = settings.model == "linear" or (
        settings.model == "auto" and cumulants.misfit(None) <= NOT_NORMAL * max(cumulants.size, 1)
    )
    total: Total = _score if normal else _without_normal_noise(sums, cumulants, curves)
    orders = searched(lines, settings.starts, rng)
    line = orders[0]

    def helped(ordering: Ordering) -> float:
        """Nats a column that curves gain along this order."""
        return (curves.evaluated(ordering.order).score - ordering.score) / sums.d

    def missed(ordering: Ordering) -> float:
        return 0.0 if normal else cumulants.misfit(_mixing(sums, ordering, cumulants)) / max(cumulants.size, 1)

    def beyond(ordering: Ordering, limit: float) -> bool:
        return settings.model == "auto" and max(helped(ordering) / CURVED, missed(ordering)) > limit

    if beyond(line, HOPELESS):
        return None
    if not normal:
        line = by_cumulants(lines, line, total, rng)
        if beyond(line, DOUBTFUL):
            return None
    # It may be lines: a few more starts, which cost little.
    orders += searched(lines, LINEAR_STARTS * settings.starts, rng)
    scores["linear"] = max(one.score for one in orders)
    if normal:
        line = max(orders, key=_score)
    else:
        line = max([line, *(by_cumulants(lines, one, total, rng) for one in _different(orders))], key=total)
        scores["lingam"] = total(line)
    scores["curves_along_lines"] = curves.evaluated(line.order).score
    if settings.model == "auto":
        # An order in which nothing explains anything has no curve that helps, either.
        scores["curves"] = max(one.score for one in searched(curves, 2, rng))
        gain = (scores["curves"] - line.score) / sums.d
        fit = not normal and _fits(missed(line), cumulants.misfit(None) / max(cumulants.size, 1))
        if helped(line) > CURVED or (gain > LITTLE and not fit):
            return None
    return _found(sums, lines, line, "linear" if normal else "lingam", total, scores)


def _fits(missed: float, without: float) -> bool:
    """Whether independent noise behind the lines explains nearly all of the cumulants."""
    return missed <= max(MISFIT, TAILED * without) and missed - CHANCE <= TOLD * (without - CHANCE)


def _score(ordering: Ordering) -> float:
    return ordering.score


def _mixing(sums: SumTable, ordering: Ordering, cumulants: PairCumulants) -> Array:
    return mixing_matrix(sums, ordering.parents, cumulants.numbers)


def _without_normal_noise(sums: SumTable, cumulants: PairCumulants, curves: OrderSearch) -> Total:
    """The score of straight lines, less what speaks against their order.

    Along the right order noise is independent of the causes: no curve helps, and the cumulants fit.
    """

    def total(ordering: Ordering) -> float:
        helped = curves.evaluated(ordering.order).score - ordering.score
        return ordering.score - max(helped, 0.0) - TRUST * cumulants.misfit(_mixing(sums, ordering, cumulants))

    return total


def _different(orders: Sequence[Ordering]) -> list[Ordering]:
    """The best orders that lead to different graphs."""
    kept = {order.adjacency.tobytes(): order for order in reversed(orders)}
    return sorted(kept.values(), key=lambda one: -one.score)[:REFINED]


def by_cumulants(search: OrderSearch, start: Ordering, total: Total, rng: np.random.Generator) -> Ordering:
    """The order after moves of single columns that raise the total, past one neighbour in the graph at least."""
    best, worth = start, total(start)
    moved = True
    while moved and not search.time_is_up():
        moved = False
        for column in rng.permutation(len(start.order)).tolist():
            for order in _moves(search, best, column):
                found = search.evaluated(order)
                if (value := total(found)) > worth + 1e-6:
                    best, worth, moved = found, value, True
    return best


def _moves(search: OrderSearch, ordering: Ordering, column: int) -> list[list[int]]:
    """The order with a column moved just past each of its neighbours in the graph."""
    graph = ordering.adjacency
    others = [one for one in ordering.order if one != column]
    near = graph[column] | graph[:, column]
    places = {p for p, one in enumerate(others) if near[one]} | {p + 1 for p, one in enumerate(others) if near[one]}
    first = max((p + 1 for p, one in enumerate(others) if search.before[one, column]), default=0)
    last = min((p for p, one in enumerate(others) if search.before[column, one]), default=len(others))
    return [[*others[:p], column, *others[p:]] for p in sorted(places) if first <= p <= last]


def _found(
    sums: SumTable, search: OrderSearch, best: Ordering, model: Model, total: Total, scores: dict[str, float]
) -> SumsFound:
    """All that a reader may want of the graph."""
    regressions, d = search.regressions, sums.d
    adjacency = best.adjacency
    left = np.array([regressions.regression(j, best.parents[j]).left for j in range(d)]) / regressions.response
    strengths, slopes, bends = (np.zeros((d, d)) for _ in range(3))
    for effect, parents in enumerate(best.parents):
        straight, shares = _contributions(regressions, effect, parents)
        for (cause, _), slope, share in zip(parents, straight, shares, strict=True):
            others = tuple(one for one in parents if one[0] != cause)
            without = regressions.regression(effect, others).left / regressions.response[effect]
            strengths[cause, effect] = np.sqrt(max(np.exp(without) - np.exp(left[effect]), 0.0))
            number = sums.nodes[cause].kind != "nominal" and sums.nodes[effect].kind != "nominal"
            slopes[cause, effect] = slope if number else np.nan
            bends[cause, effect] = 1 - slope**2 / share if number and share > 0 else 0.0
    margins = _margins(search, best, total)
    if model == "linear":
        undirected = _undirected(adjacency, search)
    else:
        sure = SURE if model == "additive" else SURE_BY_CUMULANTS
        open_ = adjacency & (margins < sure)
        undirected = open_ | open_.T
    return SumsFound(
        adjacency,
        undirected,
        strengths,
        slopes,
        bends,
        margins,
        1 - np.exp(left),
        model,
        best.order,
        scores,
        _joined(sums, regressions, best),
        np.exp(left),
    )


def described(sums: SumTable, settings: SumsSettings, graph: Mask, model: Model = "additive") -> SumsFound:
    """A given DAG with what the sums say of it, as if this model had been looked for."""
    ancestors = reaches(graph)
    order = sorted(range(len(graph)), key=lambda one: int(ancestors[:, one].sum()))
    most = None if model == "additive" else 1
    search = OrderSearch(Regressions(sums, penalty=settings.penalty, most=most, required=graph), graph, ancestors)
    return _found(sums, search, search.evaluated(order), model, _score, {})


def _contributions(regressions: Regressions, effect: int, parents: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """Of each parent: the slope of the straight part of what it adds, and the variance of all of it."""
    inside = regressions.places(parents)
    if not inside:
        return np.zeros(0), np.zeros(0)
    width = int(regressions.response[effect])
    own = slice(effect * regressions.size, effect * regressions.size + width)
    gram = regressions.flat[np.ix_(inside, inside)] + regressions.ridge * np.eye(len(inside))
    weights = np.linalg.solve(gram, regressions.flat[inside, own])
    straight, shares, at = [], [], 0
    for _, level in parents:
        straight.append(float(weights[at, 0]))
        shares.append(float(np.square(weights[at : at + level]).sum()))
        at += level
    return np.array(straight), np.array(shares)


def _margins(search: OrderSearch, best: Ordering, total: Total) -> Array:
    """By how much the best order beats orders in which one edge is turned around."""
    margins = np.zeros((len(best.order),) * 2)
    worth = total(best)
    for cause, effect in np.argwhere(best.adjacency).tolist():
        if search.before[cause, effect] or not search.may[effect, cause]:
            margins[cause, effect] = np.inf
            continue
        order = list(best.order)
        late = [one for one in order if one != cause]
        late.insert(late.index(effect) + 1, cause)
        early = [one for one in order if one != effect]
        early.insert(early.index(cause), effect)
        margins[cause, effect] = worth - max(total(search.evaluated(one)) for one in (late, early))
    return margins


def _undirected(adjacency: Mask, search: OrderSearch) -> Mask:
    """Edges that other graphs of the same class have the other way round, apart from what is known."""
    _, undirected = cpdag(adjacency)
    fixed = search.before | ~search.may.T
    fixed = adjacency & fixed
    return undirected & ~(fixed | fixed.T)


LINKED = 0.15
"""Residuals of two columns without an edge are called correlated above this."""


def _joined(sums: SumTable, regressions: Regressions, best: Ordering) -> tuple[tuple[int, int, float], ...]:
    """Pairs without an edge whose residuals are correlated."""
    d, size = sums.d, regressions.size
    rest = np.zeros((d * size, d))
    for effect, parents in enumerate(best.parents):
        rest[effect * size, effect] = 1.0
        inside = regressions.places(parents)
        if inside:
            gram = regressions.flat[np.ix_(inside, inside)] + regressions.ridge * np.eye(len(inside))
            rest[inside, effect] -= np.linalg.solve(gram, regressions.flat[inside, effect * size])
    covariance = rest.T @ regressions.flat @ rest
    scale = np.sqrt(np.maximum(covariance.diagonal(), 1e-12))
    correlation = covariance / scale[:, None] / scale[None, :]
    free = ~(best.adjacency | best.adjacency.T) & (np.abs(correlation) > max(LINKED, 4 / np.sqrt(sums.rows)))
    return tuple((int(i), int(j), float(correlation[i, j])) for i, j in np.argwhere(np.triu(free, 1)))
