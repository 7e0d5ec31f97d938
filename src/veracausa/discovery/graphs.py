"""Directed graphs as matrices, row = cause and column = effect: the cut to a DAG, and the edges as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veracausa.arrays import Array, Mask
from veracausa.data.causal import as_adjacency, topological_order
from veracausa.errors import InputError


def is_acyclic(adjacency: ArrayLike) -> bool:
    """Whether no path leads from a node back to itself; an entry on the diagonal is such a path."""
    return topological_order(adjacency) is not None


def reaches(graph: Mask) -> Mask:
    """(d, d): a way leads from row to column."""
    ways = graph.copy()
    while True:
        longer = ways | ((ways.astype(float) @ ways) > 0)
        if (longer == ways).all():
            return ways
        ways = longer


def thresholded(strength: ArrayLike, threshold: float) -> Mask:
    """The edges at least as strong as the threshold, before any cycle is broken; never the diagonal."""
    strong = np.abs(np.asarray(strength, dtype=float))
    edges = np.asarray((strong >= threshold) & (strong > 0))
    np.fill_diagonal(edges, False)
    return edges


def smallest_acyclic_threshold(strength: ArrayLike) -> float:
    """The least strength at which the edges as strong or stronger form a DAG; above all of them if none does."""
    strong = np.abs(np.asarray(strength, dtype=float))
    levels = np.unique(strong[thresholded(strong, 0.0)])
    low, high = 0, len(levels)
    # Fewer edges can not close a new cycle, so the levels that work lie all above those that do not.
    while low < high:
        middle = (low + high) // 2
        if is_acyclic(thresholded(strong, levels[middle])):
            high = middle
        else:
            low = middle + 1
    return float(levels[low]) if low < len(levels) else float(np.nextafter(strong.max(initial=0.0), np.inf))


@dataclass(frozen=True)
class Cut:
    """A DAG cut out of strengths, beside what it was cut from."""

    adjacency: Mask
    before: Mask
    """The edges above the threshold, before the constraints and before any cycle was broken."""
    was_acyclic: bool
    """Whether `before` was a DAG already."""


def cut(
    strength: ArrayLike,
    threshold: float,
    required: ArrayLike | None = None,
    forbidden: ArrayLike | None = None,
) -> Cut:
    """The DAG of `greedy_cut`, with the graph before it."""
    before = thresholded(strength, threshold)
    return Cut(greedy_cut(strength, threshold, required, forbidden), before, is_acyclic(before))


def greedy_cut(
    strength: ArrayLike,
    threshold: float,
    required: ArrayLike | None = None,
    forbidden: ArrayLike | None = None,
) -> Mask:
    """The edges from the strongest down to the threshold, leaving out each that would close a cycle.

    Required edges come first, whatever their strength; forbidden ones never come. Equally strong edges are taken in
    the order of their rows and columns.
    """
    strong = np.abs(np.asarray(strength, dtype=float))
    d = len(as_adjacency(strong, "strength"))
    if not np.isfinite(strong).all():
        raise InputError("strength: some entries are not numbers; the fit diverged, lower its learning rate")
    must, never = constraints(d, required, forbidden)
    # reaches[i, j]: a path leads from i to j. Kept closed, so that asking for a cycle is one look.
    reaches = np.eye(d, dtype=bool)
    adjacency = np.zeros((d, d), dtype=bool)

    def insert(cause: int, effect: int) -> None:
        adjacency[cause, effect] = True
        reaches[:] |= np.outer(reaches[:, cause], reaches[effect])

    for cause, effect in np.argwhere(must):
        insert(int(cause), int(effect))
    allowed = thresholded(strong, threshold) & ~never & ~must
    candidates = np.argwhere(allowed)
    for cause, effect in candidates[np.argsort(-strong[allowed], kind="stable")]:
        if not reaches[effect, cause]:
            insert(int(cause), int(effect))
    return adjacency


def constraints(d: int, required: ArrayLike | None, forbidden: ArrayLike | None) -> tuple[Mask, Mask]:
    """Both sets of edges as (d, d) booleans, refused where they contradict each other or themselves."""
    none = np.zeros((d, d), dtype=bool)
    must = none if required is None else as_adjacency(required, "required")
    never = none if forbidden is None else as_adjacency(forbidden, "forbidden")
    for name, edges in (("required", must), ("forbidden", never)):
        if edges.shape != (d, d):
            raise InputError(f"{name}: shape {edges.shape} for a graph of {d} columns; give a ({d}, {d}) matrix")
    both = np.argwhere(must & never)
    if len(both):
        cause, effect = both[0]
        raise InputError(f"edge {cause} -> {effect} is required and forbidden; remove it from one of the two")
    if not is_acyclic(must):
        raise InputError("required: the edges form a cycle, which no DAG can hold; remove one of them")
    return must, never


COLUMNS = ("cause", "effect", "strength", "confidence", "cause_party", "effect_party")


def edge_rows(
    adjacency: NDArray[np.bool_],
    strengths: NDArray[np.float64],
    confidence: NDArray[np.float64] | None,
    names: Sequence[str],
    parties: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """The edges, strongest first, each with the values of `COLUMNS`."""
    owner = {column: party for party, columns in parties.items() for column in columns}
    rows = [
        {
            "cause": names[cause],
            "effect": names[effect],
            "strength": float(strengths[cause, effect]),
            "confidence": None if confidence is None else float(confidence[cause, effect]),
            "cause_party": owner.get(names[cause], ""),
            "effect_party": owner.get(names[effect], ""),
        }
        for cause, effect in np.argwhere(adjacency)
    ]
    return sorted(rows, key=lambda row: (-row["strength"], row["cause"], row["effect"]))


def revealed(
    rows: Sequence[Mapping[str, Any]], parties: Sequence[str], reveal: Literal["all", "own"]
) -> dict[str, list[dict[str, Any]]]:
    """What each party is told: every edge, or those that touch its own attributes."""
    return {
        party: [dict(row) for row in rows if reveal == "all" or party in (row["cause_party"], row["effect_party"])]
        for party in parties
    }


def chosen_graph(strengths: Array, allowed: Mask, threshold: float, required: Mask) -> Mask:
    """The DAG that a fit stands for."""
    return greedy_cut(np.where(allowed, strengths, 0.0), threshold, required, ~allowed & ~required)
