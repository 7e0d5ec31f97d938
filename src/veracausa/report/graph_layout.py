"""Where the nodes and edges of a causal graph lie: causes above effects, long edges around what is between."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from veracausa.data.causal import topological_order

SWEEPS = 16
GAP = 18.0
"""Between two boxes of a layer."""
LANE = 13.0
"""Between two edges that run side by side."""
LAYER = 88.0
BOX = 30.0


SHELF = 640.0
"""Parts of a graph that no edge joins stand side by side up to this width, then below each other."""

Edge = tuple[int, int]
Way = list[tuple[float, float]]


@dataclass(frozen=True)
class GraphLayout:
    """Centres of the boxes, and the points that each edge passes, from its upper end to its lower."""

    x: list[float]
    y: list[float]
    ways: dict[Edge, Way]
    width: float
    height: float


def layered(d: int, edges: Sequence[Edge], widths: Sequence[float]) -> GraphLayout:
    """A layout of a DAG with boxes this wide: parts that hang together each in layers, the largest first."""
    parts = sorted(_parts(d, edges), key=lambda part: -len(part))
    drawn = []
    for part in parts:
        number = {node: at for at, node in enumerate(part)}
        own = [(number[cause], number[effect]) for cause, effect in edges if cause in number]
        drawn.append(_layout(len(part), own, [widths[node] for node in part]))
    shelf = max([SHELF, *(one.width for one in drawn)])
    x, y, ways = [0.0] * d, [0.0] * d, dict[Edge, Way]()
    left = top = lowest = width = 0.0
    for part, one in zip(parts, drawn, strict=True):
        if left and left + one.width > shelf:
            left, top = 0.0, lowest + 2 * GAP
        for at, node in enumerate(part):
            x[node], y[node] = one.x[at] + left, one.y[at] + top
        for (cause, effect), way in one.ways.items():
            ways[part[cause], part[effect]] = [(across + left, down + top) for across, down in way]
        width, lowest = max(width, left + one.width), max(lowest, top + one.height)
        left += one.width + 2 * GAP
    return GraphLayout(x, y, ways, width, lowest)


def _parts(d: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Nodes that edges join, whichever way they lead."""
    part = list(range(d))
    for cause, effect in edges:
        old, new = part[effect], part[cause]
        part = [new if mark == old else mark for mark in part]
    return [[node for node in range(d) if part[node] == mark] for mark in dict.fromkeys(part)]


def _layout(d: int, edges: Sequence[Edge], widths: Sequence[float]) -> GraphLayout:
    """One part, after Sugiyama: layers, few crossings, straight lines."""
    layer = _layers(d, edges)
    # Every layer that an edge crosses gets a point of it, so that it takes its place among the boxes there.
    room = list(widths)
    level = list(layer)
    chains: dict[Edge, list[int]] = {}
    for cause, effect in edges:
        chain = [cause]
        for between in range(layer[cause] + 1, layer[effect]):
            chain.append(len(room))
            room.append(0.0)
            level.append(between)
        chains[cause, effect] = [*chain, effect]
    above: list[list[int]] = [[] for _ in room]
    below: list[list[int]] = [[] for _ in room]
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    rows: list[list[int]] = [[] for _ in range(max(level, default=0) + 1)]
    for node, at in enumerate(level):
        rows[at].append(node)
    rows = _fewest_crossings(rows, above, below)
    x = _straightened(rows, above, below, room)
    low = min((x[n] - room[n] / 2 for n in range(len(room))), default=0.0)
    high = max((x[n] + room[n] / 2 for n in range(len(room))), default=0.0)
    x = [at - low for at in x]
    ways = _ways(chains, x, room, level, d)
    y = [at * LAYER + BOX / 2 for at in layer]
    return GraphLayout(x[:d], y, ways, high - low, (len(rows) - 1) * LAYER + BOX)


def _layers(d: int, edges: Sequence[Edge]) -> list[int]:
    """As far down as the longest way from a root; a node without causes right above its first effect."""
    matrix = np.zeros((d, d), dtype=bool)
    for cause, effect in edges:
        matrix[cause, effect] = True
    order = topological_order(matrix)
    assert order is not None, "only a DAG has layers"
    layer = [0] * d
    for node in order:
        for cause in np.flatnonzero(matrix[:, node]).tolist():
            layer[node] = max(layer[node], layer[cause] + 1)
    for node in range(d):
        if not matrix[:, node].any() and matrix[node].any():
            layer[node] = min(layer[effect] for effect in np.flatnonzero(matrix[node]).tolist()) - 1
    return layer


def _fewest_crossings(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    """Each layer sorted by where its neighbours lie, down and up again; of all tries the one with fewest crossings."""
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    rows = [list(row) for row in rows]
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for at in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            place = {node: p for p, node in enumerate(rows[at - 1 if down else at + 1])}
            own = {node: p for p, node in enumerate(rows[at])}
            rows[at].sort(key=lambda n: _mean([place[m] for m in neighbours[n]], own[n]))
        if (crossings := _crossings(rows, below)) < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _mean(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _crossings(rows: list[list[int]], below: list[list[int]]) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {node: p for p, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[m] for m in below[node])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _straightened(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], room: list[float]
) -> list[float]:
    """Places in a layer that keep its order and its distances, each as near to its neighbours as that allows."""
    x = [0.0] * len(room)
    shifts = []
    for row in rows:
        shift = [0.0]
        for left, right in pairwise(row):
            boxes = bool(room[left]) + bool(room[right])
            shift.append(shift[-1] + (room[left] + room[right]) / 2 + (GAP if boxes else LANE))
        shifts.append(shift)
        for node, at in zip(row, shift, strict=True):
            x[node] = at - shift[-1] / 2
    for sweep in range(2 * SWEEPS):
        for at in range(len(rows)) if sweep % 2 == 0 else range(len(rows) - 1, -1, -1):
            row = rows[at]
            wish = [_mean([x[m] for m in (*above[n], *below[n])], x[n]) for n in row]
            # An edge that only passes through should be straight: it pulls harder than a box.
            weight = [1.0 if room[n] else 3.0 for n in row]
            placed = _monotone([w - s for w, s in zip(wish, shifts[at], strict=True)], weight)
            for node, place, moved in zip(row, placed, shifts[at], strict=True):
                x[node] = place + moved
    return x


def _monotone(wish: Sequence[float], weight: Sequence[float]) -> list[float]:
    """The nearest values to these that never fall (pool adjacent violators)."""
    pools: list[list[float]] = []  # mean, weight, how many
    for value, heavy in zip(wish, weight, strict=True):
        pools.append([value, heavy, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, mass, count = pools.pop()
            before = pools[-1]
            total = before[1] + mass
            pools[-1] = [(before[0] * before[1] + mean * mass) / total, total, before[2] + count]
    return [mean for mean, _, count in pools for _ in range(int(count))]


def _ways(
    chains: dict[Edge, list[int]], x: list[float], room: list[float], level: list[int], d: int
) -> dict[Edge, Way]:
    """Points of each edge; at a box its edges are spread, in the order in which they come."""
    leaving: list[list[tuple[float, Edge]]] = [[] for _ in range(d)]
    coming: list[list[tuple[float, Edge]]] = [[] for _ in range(d)]
    for edge, chain in chains.items():
        leaving[edge[0]].append((x[chain[1]], edge))
        coming[edge[1]].append((x[chain[-2]], edge))
    ports: dict[tuple[Edge, bool], float] = {}
    for node in range(d):
        for sides, lower in ((leaving[node], False), (coming[node], True)):
            sides.sort()
            step = min(LANE, (room[node] - 16) / max(1, len(sides) - 1))
            for number, (_, edge) in enumerate(sides):
                ports[edge, lower] = x[node] + (number - (len(sides) - 1) / 2) * step
    return {
        edge: [
            (ports[edge, False], level[edge[0]] * LAYER + BOX),
            *((x[node], level[node] * LAYER + BOX / 2) for node in chain[1:-1]),
            (ports[edge, True], level[edge[1]] * LAYER),
        ]
        for edge, chain in chains.items()
    }
