"""Trees whose splits are drawn at random, without labels: a row's leaf says which values of several columns it has.

All trees cut a number at values of one grid and take words by merged groups only. So no two splits of a column differ
in few rows, and no leaf has few of the rows the trees were grown on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.features.base import RowColumn

LEVELS = 32
"""Cuts that a number can have at most, at equal shares of its rows."""
TRIES = 6
"""Columns that a node tries before it becomes a leaf."""

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """A node: rows whose values at `at` sum up to `cut` or more go right. A leaf has no `at`."""

    at: tuple[int, ...] = ()
    cut: float = 0.0
    left: int = 0
    right: int = 0


@dataclass(frozen=True)
class Splittable:
    """What one column of the table can be split by: cuts of a number, or groups of words that go together."""

    at: int = 0
    cuts: tuple[float, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    def draw(self, rng: np.random.Generator) -> tuple[tuple[int, ...], float]:
        """Places and cut of a random split."""
        if self.cuts:
            return (self.at,), self.cuts[int(rng.integers(len(self.cuts)))]
        # Any set of groups but none; the group that was left out is on the other side.
        taken = rng.random(len(self.groups)) < 0.5
        taken[rng.integers(len(self.groups))] = True
        return tuple(at for group, chosen in zip(self.groups, taken, strict=True) if chosen for at in group), 0.5


def splittable(
    sample: Array, columns: Sequence[RowColumn], groups: Sequence[Sequence[int]], min_rows: int
) -> list[Splittable]:
    """The columns that can be split so that both sides, and the rows between two cuts, are `min_rows` or more."""
    found = []
    for column in columns:
        if column.kind == "number":
            if cuts := _cuts(sample[:, column.at[0]], min_rows):
                found.append(Splittable(at=column.at[0], cuts=cuts))
        else:
            own = tuple(tuple(group) for group in groups if set(group) <= set(column.at))
            if own:
                found.append(Splittable(groups=own))
    return found


def _cuts(values: Array, min_rows: int) -> tuple[float, ...]:
    ordered = np.sort(values)
    cuts: list[float] = []
    before = 0
    for value in np.unique(np.quantile(ordered, np.linspace(0, 1, LEVELS + 1)[1:], method="lower")):
        below = int(np.searchsorted(ordered, value))
        if below - before >= min_rows and len(ordered) - below >= min_rows:
            cuts.append(float(value))
            before = below
    return tuple(cuts)


class RandomTree:
    """One tree: `place` says in which of its `leaves` each row lies."""

    def __init__(self, nodes: Sequence[Split]) -> None:
        self.nodes = tuple(nodes)
        ends = [number for number, node in enumerate(self.nodes) if not node.at]
        self._leaf = {node: leaf for leaf, node in enumerate(ends)}

    @property
    def leaves(self) -> int:
        return len(self._leaf)

    @classmethod
    def grow(
        cls, sample: Array, columns: Sequence[Splittable], depth: int, least: int, rng: np.random.Generator
    ) -> RandomTree:
        """Split at random until leaves are `depth` splits deep, or have fewer than twice `least` rows."""
        nodes = [Split()]
        open_nodes = [(0, 0, np.arange(len(sample)))]
        while open_nodes:
            number, deep, rows = open_nodes.pop()
            if deep == depth or len(rows) < 2 * least:
                continue
            for chosen in rng.permutation(len(columns))[:TRIES]:
                at, cut = columns[chosen].draw(rng)
                right = _goes_right(sample, rows, at, cut)
                if least <= int(right.sum()) <= len(rows) - least:
                    nodes[number] = Split(at, cut, len(nodes), len(nodes) + 1)
                    open_nodes += [(len(nodes), deep + 1, rows[~right]), (len(nodes) + 1, deep + 1, rows[right])]
                    nodes += [Split(), Split()]
                    break
        return cls(nodes)

    def place(self, rows: Array) -> Places:
        """(n,): the leaf of each row."""
        found = np.zeros(len(rows), np.int64)
        parts = [(0, np.arange(len(rows)))]
        while parts:
            number, those = parts.pop()
            node = self.nodes[number]
            if node.at:
                right = _goes_right(rows, those, node.at, node.cut)
                parts += [(node.left, those[~right]), (node.right, those[right])]
            else:
                found[those] = self._leaf[number]
        return found

    def state(self) -> list[Any]:
        """Plain JSON values."""
        return [[list(node.at), node.cut, node.left, node.right] for node in self.nodes]

    @classmethod
    def from_state(cls, state: Sequence[Any], inputs: int) -> RandomTree:
        """The tree that `state` was taken of, for rows of so many values; a `ValueError` where it cannot be one."""
        nodes = [Split(tuple(int(p) for p in at), float(cut), int(left), int(right)) for at, cut, left, right in state]
        if not nodes:
            raise ValueError("a tree has no node")
        for number, node in enumerate(nodes):
            # Children come after their node: no tree goes round in circles.
            if node.at and not (number < node.left < len(nodes) and number < node.right < len(nodes)):
                raise ValueError("a split leads to no node")
            if not np.isfinite(node.cut) or any(not 0 <= place < inputs for place in node.at):
                raise ValueError("a split is of a value that rows do not have")
        return cls(nodes)


def _goes_right(values: Array, rows: Places, at: Sequence[int], cut: float) -> NDArray[np.bool_]:
    taken = values[rows, at[0]] if len(at) == 1 else values[rows[:, None], np.array(at)].sum(1)
    right: NDArray[np.bool_] = taken >= cut
    return right


def leaf_places(trees: Sequence[RandomTree], rows: Array) -> Places:
    """(n, trees): the leaf of each row, with the leaves of all trees numbered through."""
    starts = np.cumsum([0, *(tree.leaves for tree in trees)])
    found = [tree.place(rows) + start for tree, start in zip(trees, starts, strict=False)]
    return np.stack(found, axis=1) if found else np.zeros((len(rows), 0), np.int64)


def together(places: Places, leaves: int) -> Array:
    """(leaves, leaves): how many rows lie in both."""
    from scipy.sparse import csr_matrix

    rows, trees = places.shape
    starts = trees * np.arange(rows + 1)
    ones = csr_matrix((np.ones(rows * trees), places.ravel(), starts), (rows, leaves))
    counts: Array = (ones.T @ ones).toarray()
    return counts


def leaf_sums(places: Places, leaves: int, values: Array) -> Array:
    """(leaves, columns): sums of the values of each leaf's rows."""
    found = np.zeros((leaves, values.shape[1]))
    for own in places.T:
        np.add.at(found, own, values)
    return found


def states_of(trees: Sequence[RandomTree]) -> list[Any]:
    return [tree.state() for tree in trees]


def trees_of(states: Mapping[str, Any], inputs: int) -> list[RandomTree]:
    """The trees under `trees` of a saved map."""
    return [RandomTree.from_state(state, inputs) for state in states["trees"]]
