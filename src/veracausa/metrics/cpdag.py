"""Classes of graphs that no independence can tell apart: the CPDAG of a DAG, a DAG of a CPDAG, and scores for both.

A CPDAG is two matrices with row = cause: `directed`, edges that have one direction in every DAG of the class, and
`undirected`, symmetric, edges that have either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veracausa.metrics.graphs import EdgeScores

Edges = NDArray[np.bool_]


def cpdag(adjacency: ArrayLike) -> tuple[Edges, Edges]:
    """The class of a DAG: edges whose direction it compels, and those that it leaves open."""
    edges = np.asarray(adjacency) != 0
    near = edges | edges.T
    # An edge into a node is compelled where another cause of that node is no neighbour of its own.
    apart = ~near
    np.fill_diagonal(apart, False)
    collider = edges & (_product(apart, edges) > 0)
    return meek(collider, near & ~(collider | collider.T))


def meek(directed: ArrayLike, undirected: ArrayLike) -> tuple[Edges, Edges]:
    """Both after the four rules of Meek (1995): what follows from no new collider and no cycle."""
    arrows, lines = np.array(directed) != 0, np.array(undirected) != 0
    while lines.any():
        new = lines & _implied(arrows, lines)
        new &= ~np.tril(new.T)  # contradictory edges of data: the one from the lower number is kept
        if not new.any():
            break
        arrows |= new
        lines &= ~(new | new.T)
    return arrows, lines


def _implied(arrows: Edges, lines: Edges) -> Edges:
    near = arrows | arrows.T | lines
    chain = _product(arrows.T, ~near) > 0  # a -> b - c, a and c apart: b -> c
    cycle = _product(arrows, arrows) > 0  # a -> b -> c and a - c: a -> c
    found = np.asarray(chain | cycle)
    for tail, head in np.argwhere(lines & ~found):
        middle = np.flatnonzero(lines[tail] & arrows[:, head])
        # a - c -> b, a - d -> b, c and d apart: a -> b
        if len(middle) > 1 and (np.triu(~near[np.ix_(middle, middle)], 1)).any():
            found[tail, head] = True
            continue
        # a - c -> d -> b, a and d joined, c and b apart: a -> b
        last = near[tail] & arrows[:, head]
        first = lines[tail] & ~near[:, head]
        first[head] = False
        found[tail, head] = bool((arrows[np.ix_(first, last)]).any())
    return found


def dag_of(directed: ArrayLike, undirected: ArrayLike) -> Edges | None:
    """One DAG with these edges and no other collider (Dor and Tarsi 1992); None if there is none."""
    arrows, lines = np.array(directed) != 0, np.array(undirected) != 0
    found: Edges = arrows.copy()
    left = list(range(len(arrows)))
    while left:
        near = arrows | arrows.T | lines
        sink = next((node for node in left if not arrows[node].any() and _joined(node, near, lines)), None)
        if sink is None:
            return None
        found[lines[sink], sink] = True
        for matrix in (arrows, lines):
            matrix[sink] = matrix[:, sink] = False
        left.remove(sink)
    return found


def _joined(node: int, near: Edges, lines: Edges) -> bool:
    """Whether all that a line joins to the node are neighbours of all its other neighbours."""
    around = near[node]
    for other in np.flatnonzero(lines[node]):
        missing = around & ~near[other]
        missing[other] = False
        if missing.any():
            return False
    return True


def partial_scores(truth: ArrayLike, predicted: ArrayLike, undirected: ArrayLike) -> EdgeScores:
    """Scores of edges of which some have no direction: over a true edge such a one counts a half, else nothing.

    Args:
        truth: The true DAG.
        predicted: One DAG that the method stands for, or only its directed edges.
        undirected: Which edges, in both directions, the method tells without a direction.
    """
    true, lines = np.asarray(truth) != 0, np.asarray(undirected) != 0
    arrows = (np.asarray(predicted) != 0) & ~lines
    found = float((true & arrows).sum()) + 0.5 * float((true & lines).sum())
    return EdgeScores(found, int(arrows.sum()) + int(np.triu(lines | lines.T, 1).sum()), int(true.sum()))


def cpdag_scores(truth: ArrayLike, predicted: ArrayLike, undirected: ArrayLike) -> dict[str, float]:
    """A row's scores of directions: `partial_f1`, the undirected edges, and the directed ones that no class compels.

    `uncompelled` counts directed edges between neighbours of the true graph whose direction its class leaves open:
    for linear Gaussian data nobody can know it.
    """
    lines = np.asarray(undirected) != 0
    arrows = (np.asarray(predicted) != 0) & ~lines
    _, open_ones = cpdag(truth)
    return {
        "partial_f1": partial_scores(truth, predicted, undirected).f1,
        "undirected": float(np.triu(lines, 1).sum()),
        "uncompelled": float((arrows & open_ones).sum()),
    }


def _product(first: Edges, second: Edges) -> NDArray[np.float64]:
    return np.asarray(first.astype(float) @ second.astype(float))
