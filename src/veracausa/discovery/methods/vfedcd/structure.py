"""The structure update: it keeps the graph sparse, drives it to be acyclic, and finds the threshold of its edges."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.acyclicity import ACYCLICITY
from veracausa.discovery.graphs import greedy_cut, is_acyclic

SMALL = 1e-9
WEAKEST = 0.05
"""Added to strengths where they divide, so that no edge is pulled without bound."""

if TYPE_CHECKING:
    from veracausa.discovery.methods.vfedcd.settings import Settings


class Structure:
    """From the strengths B (R, d, d) to the factor by which every block W[i, j] is scaled.

    A gradient step on a penalty that depends on the strengths alone scales each block: that is why holders of shares
    can do it without knowing the weights.
    """

    def __init__(self, settings: Settings, allowed: Mask, required: Mask | None = None) -> None:
        self.settings = settings
        self.allowed = allowed
        """(R, d, d): edges that may be there; never the diagonal."""
        self.required = np.zeros(allowed.shape[1:], dtype=bool) if required is None else required
        self.penalty = ACYCLICITY[settings.acyclicity]()
        self.weight = np.zeros(len(allowed))
        self.searching = True
        """Whether the acyclicity term is on; in the refit it is not needed."""
        self.value = np.zeros(len(allowed))
        self.sparsity_weight: float | Array = settings.sparsity_weight
        """For all replicates, or (R, 1, 1)."""
        self.start: Mask | None = None
        """(d, d): edges that come first in the order, if there are any."""

    def factors(self, strengths: Array, steps: int) -> Array:
        """κ (R, d, d) for this many steps of the optimiser; 0 ends an edge that the penalty would turn around."""
        settings = self.settings
        moved = settings.learning_rate * steps
        shrink = np.zeros_like(strengths)
        if self.searching:
            self.value, gradient = self.penalty(strengths)
            shrink += self.weight[:, None, None] * gradient
        if settings.sparsity == "group_lasso":
            shrink += self.pull(strengths)
        shrink = np.where(self.required, 0.0, shrink)
        kept = 1 - moved * shrink / np.maximum(strengths, SMALL)
        if settings.sparsity == "l2":
            kept -= 2 * moved * settings.sparsity_weight
        return np.where(self.allowed, np.maximum(kept, 0.0), 0.0)

    def pull(self, strengths: Array) -> Array:
        """The slope of the group lasso by each strength.

        In the refit it is that of a logarithm, which pulls weak edges more and strong ones less: of causes that say
        nearly the same, one stays.
        """
        settings = self.settings
        share = np.ones_like(strengths)
        if settings.lasso_pivot and not self.searching:
            share = (settings.lasso_pivot + WEAKEST) / (strengths + WEAKEST)
        return self.sparsity_weight * share

    def end_epoch(self, strengths: Array, epoch: int) -> None:
        """Let the acyclicity term's weight grow, but not where the graph of the strong edges is acyclic already."""
        if not self.searching:
            return
        settings = self.settings
        for replicate, strength in enumerate(strengths):
            if epoch < 2 or not is_acyclic(strength > settings.cycle_tolerance):
                self.weight[replicate] += settings.acyclicity_growth
        if settings.acyclicity_max is not None:
            self.weight = np.minimum(self.weight, settings.acyclicity_max)

    def settle(self, strengths: Array) -> Mask:
        """End the search: from now on an edge may only follow the order in which the strongest edges lie."""
        self.searching = False
        self.allowed = self.orders(strengths, self.start)
        return self.allowed

    def orders(self, strengths: Array, start: Mask | None = None) -> Mask:
        """(R, d, d): all edges in the order of the strongest ones, after those of `start`, (d, d) or (R, d, d)."""
        starts = np.broadcast_to(np.zeros_like(self.required) if start is None else start, self.allowed.shape)
        orders = []
        for strength, allowed, begun in zip(strengths, self.allowed, starts, strict=True):
            first = greedy_cut(begun.astype(float), 0.5, self.required)
            orders.append(greedy_cut(strength + SMALL, 0.0, first, ~allowed & ~first))
        return np.stack(orders) & self.allowed


BY_LIKELIHOOD = ("held_out", "held_out_graphs")
"""Rules that ask held-out rows. They differ between parties only, in what is opened of these rows."""


def candidates(strengths: Array, allowed: Mask, required: Mask, count: int) -> tuple[Array, Mask]:
    """So many thresholds from none to all edges, evenly by how many edges they leave, and the DAG of each."""
    values = np.sort(strengths[allowed & (strengths > 0)])
    if not len(values):
        return np.zeros(1), required[None]
    at = np.unique(np.linspace(0, len(values) - 1, count).round().astype(int))
    # Between two strengths, so that rounding decides nothing.
    thresholds = np.append((values[at] + np.where(at > 0, values[at - 1], 0.0)) / 2, values[-1] * 2)
    graphs = [greedy_cut(np.where(allowed, strengths, 0.0), tau, required, ~allowed) for tau in thresholds]
    return thresholds, np.stack(graphs)


def mean_gain(loss: float, empty: float, attributes: int) -> float:
    """What an attribute gains, on average, from all its causes."""
    return max(0.0, empty - loss) / attributes


def most_worthy(losses: Array, edges: Array, empty: float, attributes: int, min_edge_gain: float) -> int:
    """Which candidate is best, by the held-out loss of each, its edges, and the loss of attributes without causes.

    An edge has to lower the loss by a share of what an attribute gains, on average, from all its causes. That scale
    comes from the data: where little can be explained, little is asked of an edge.
    """
    cost = losses + min_edge_gain * mean_gain(float(losses.min()), empty, attributes) * edges
    # Among equals the sparser graph.
    return int(np.lexsort((edges, cost.round(12)))[0])


POWER = 2.5
"""Ending an edge of strength b raises the loss by about a·b^2.5, between the square that a linear relation has and
the cube of a curved one."""
BLUR = 0.25
"""Rises below this share of what an edge must be worth say little, and are hardly told apart."""
MODEST = 0.3
"""Attributes that gain less than this from their causes, in nats, ask less of an edge: there several causes share what
can be explained, where others explain nearly all together."""
CHANCE = 2.0
"""Over so many by the held-out rows, a rise is more than chance; an edge is never worth its place by less."""


def endings(strengths: Array, own: slice, count: int) -> Mask:
    """Sets of edges into a party's attributes that it can end by itself, for trial: (at most `count`, d, d).

    Of one attribute all edges from other parties, whose sum alone the party knows, or one edge between two of its own;
    where that makes too many, several such together, of similar strength.
    """
    d = len(strengths)
    mine = np.zeros(d, dtype=bool)
    mine[own] = True
    live = strengths > 0
    foreign = [np.outer(~mine, np.arange(d) == at) & live for at in np.flatnonzero(mine)]
    blocks = sorted((block for block in foreign if block.any()), key=lambda block: float(strengths[block].sum()))
    inner = np.argwhere(live & mine[:, None] & mine)
    inner = inner[np.argsort(strengths[tuple(inner.T)], kind="stable")]
    # Own edges tell one by one what a strength is worth: half of the trials are theirs, if there are as many.
    room = count - min(len(inner), count // 2)
    tried = [np.any(blocks[part.start : part.stop], axis=0) for part in _parts(len(blocks), room)]
    for part in _parts(len(inner), count - len(tried)):
        edges = np.zeros((d, d), dtype=bool)
        edges[tuple(inner[part.start : part.stop].T)] = True
        tried.append(edges)
    return np.array(tried, dtype=bool).reshape(-1, d, d)


def _parts(size: int, count: int) -> list[range]:
    """So many numbers in a row, in at most so many parts of nearly the same length."""
    ends = np.unique(np.linspace(0, size, min(size, count) + 1).round().astype(int))
    return [range(start, stop) for start, stop in itertools.pairwise(ends.tolist())]


def worth_threshold(
    strengths: Array, allowed: Mask, ended: Mask, rises: Array, gain: float, min_edge_gain: float, rows: int
) -> float:
    """The strength from which an edge is worth its place, by how much the held-out loss rose as sets of edges ended.

    `gain` is what an attribute gains on average from all its causes, on so many `rows`. One number is fitted, a in
    a·Σb^2.5: the one whose logarithm is nearest to what the sets say, each of them with the same voice. Where no set
    is worth what one edge has to be, they do not say where edges begin: then the threshold is where strengths part in
    two. Where none is worth more than chance, no edge counts.
    """
    chance = CHANCE / rows
    if rises.max(initial=0.0) < chance:
        return 2 * float(strengths.max())
    least = max(min_edge_gain * gain * gain / (gain + MODEST), chance)
    if rises.max() < least:
        return mixture_threshold(strengths, allowed)
    powers = np.where(ended, strengths**POWER, 0.0).sum((1, 2))
    said = np.log(np.maximum(rises, 0.0) / least + BLUR)

    def misfit(scale: Array) -> Array:
        off = np.abs(said - np.log(np.exp(scale)[:, None] * powers + BLUR))
        return np.asarray(np.where(off < 1, 0.5 * off * off, off - 0.5).sum(1))  # a few wild rises decide nothing

    wide = np.linspace(-6.0, 12.0, 181)
    near = wide[misfit(wide).argmin()] + np.linspace(-0.1, 0.1, 41)
    return float(np.exp(-near[misfit(near).argmin()] / POWER))


ITERATIONS = 200
NARROW = 0.02
"""The least deviation of a part: a few equal strengths are no peak."""


def mixture_threshold(strengths: Array, allowed: Mask) -> float:
    """Where the strengths part in two: weak ones, which sparsity only just left, and edges.

    Two normal distributions are fitted to the square roots of the allowed edges' strengths; the threshold is where an
    edge belongs to either with equal probability. The square root makes the weak ones' spread comparable.
    """
    values = np.sort(np.sqrt(strengths[allowed]))
    if len(values) < 4 or values[-1] - values[0] < NARROW:
        return float(values.mean() ** 2) if len(values) else 0.0
    share = (values < _widest_parting(values)).astype(float)
    for _ in range(ITERATIONS):
        before = share
        share = _belongs_low(values, *_part(values, share), *_part(values, 1 - share))
        if np.abs(share - before).max() < 1e-9:
            break
    strong = share < 0.5
    strong[: int((~strong).argmax()) if (~strong).any() else 0] = False  # a wide upper part also claims the lowest
    first = int(strong.argmax()) if strong.any() else len(values) - 1
    return float(np.square((values[max(first - 1, 0)] + values[first]) / 2))


def _part(values: Array, weight: Array) -> tuple[float, float, float]:
    """How large a part is, its mean, its deviation."""
    size = max(float(weight.sum()), 1e-12)
    mean = float((weight * values).sum() / size)
    return size, mean, max(NARROW, float(np.sqrt((weight * (values - mean) ** 2).sum() / size)))


def _belongs_low(values: Array, *parts: float) -> Array:
    """The probability that each value belongs to the first part."""
    size, mean, deviation, other_size, other_mean, other_deviation = parts
    a = np.log(size / deviation) - 0.5 * ((values - mean) / deviation) ** 2
    b = np.log(other_size / other_deviation) - 0.5 * ((values - other_mean) / other_deviation) ** 2
    return np.asarray(1 / (1 + np.exp(np.clip(b - a, -50, 50))))


def _widest_parting(values: Array) -> float:
    """The place that parts sorted values into two classes with the most variance between them (Otsu)."""
    count = np.arange(1, len(values))
    lower = np.cumsum(values)[:-1]
    upper = values.sum() - lower
    between = count * (len(values) - count) * (lower / count - upper / (len(values) - count)) ** 2
    at = int(between.argmax())
    return float((values[at] + values[at + 1]) / 2)


def rule_in_words(rule: object, strengths: Array, allowed: Mask, threshold: float) -> str:
    """Where a threshold came from."""
    if rule not in BY_LIKELIHOOD:
        return "where strengths part in two" if rule == "mixture" else "as it was set"
    if threshold >= 2 * float(strengths.max(initial=0.0)):
        return "above all strengths, because no edge predicts held-out rows better than chance"
    if threshold == mixture_threshold(np.where(allowed, strengths, 0.0), allowed):
        return "where strengths part in two, because held-out rows did not say where edges begin"
    return f"rule {rule}: from which strength an edge predicts held-out rows better by enough"
