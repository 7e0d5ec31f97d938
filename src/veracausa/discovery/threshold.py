"""The strength from which an edge counts, found in the data, never in a true graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veracausa.discovery.graphs import greedy_cut

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BY_LIKELIHOOD = ("held_out", "held_out_graphs")
"""Rules that ask rows kept apart. They differ between parties only, in what is opened of these rows."""


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


def most_worthy(losses: Array, edges: Array, empty: float, attributes: int, edge_worth: float) -> int:
    """Which candidate is best, by the held-out loss of each, its edges, and the loss of attributes without causes.

    An edge has to lower the loss by a share of what an attribute gains, on average, from all its causes. That scale
    comes from the data: where little can be explained, little is asked of an edge.
    """
    gain = max(0.0, empty - float(losses.min())) / attributes
    cost = losses + edge_worth * gain * edges
    # Among equals the sparser graph.
    return int(np.lexsort((edges, cost.round(12)))[0])


POWER = 3
"""An edge of strength b lowers the loss by about a·b³: on graphs of 10 to 25 attributes b² and b⁴ fitted worse."""
IN_DOUBT = 2.0
"""Edges as strong as this are not tried: they are worth their place, and b³ of one would outweigh all others."""
TYPICAL = 0.65
"""The threshold where nothing tells another one: the middle of those found on graphs of 10 to 25 attributes."""


def weakest_first(strengths: Array, tried: Mask, count: int) -> tuple[Mask, Array]:
    """Tried edges ended in so many steps, from none to all: which are kept, and the sum of b³ over those that ended."""
    ordered = np.sort(strengths[tried])
    ended = np.unique(np.linspace(0, len(ordered), count + 1).round().astype(int))
    kept = tried & (strengths >= np.append(ordered, np.inf)[ended][:, None, None])
    return kept, np.where(tried & ~kept, strengths**POWER, 0.0).sum((1, 2))


def worth_threshold(
    ended: Array, losses: Array, empty: float, attributes: int, edge_worth: float, strongest: float
) -> float:
    """The strength from which an edge is worth its place, by how the held-out loss rises as some edges end.

    What an edge has to lower the loss by is the share of `most_worthy`. How the loss depends on strength is fitted to
    the edges that were ended, `ended` their sums of b³, and a single one of strength 1 that is worth what is typical:
    where few edges could be tried, or none of them matters, that one decides.
    """
    least = edge_worth * max(0.0, empty - float(losses.min())) / attributes
    none = 2 * strongest
    slope = float((losses - losses[0]) @ ended + least / TYPICAL**POWER) / float(ended @ ended + 1)
    if losses.min() >= empty or slope * none**POWER <= least:
        return none
    return float((least / slope) ** (1 / POWER))


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
