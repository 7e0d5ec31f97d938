"""Rows that a party's own features single out, and curves whose ends do not.

A row's leverage is the share of a partner's values in that row that a combination of the party's features can read out
of the sums. It is largest for the smallest and the largest values of a column, where curves bend freely. So the rows at
each end share one value of every curve, their mean. The number itself stays as it is: straight lines hardly tell rows,
and a moved number would hide what causes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.methods.moments.expansion import LEAST, Expansion, NodeLayout

TAILS = (1, 2, 4)
"""So many times `LEAST` rows share the curves' values at each end of a column, the fewest that suffice."""
LONGEST_TAIL = 0.1
"""Of the rows."""
SMALLEST_EIGENVALUE = 1e-11


def leverages(features: Array) -> Array:
    """(n,): the largest share that a row can have in a combination of the features and a constant, squared."""
    whole = np.column_stack([np.ones(len(features)), features])
    gram = whole.T @ whole
    norms = np.sqrt(np.diag(gram))
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    values, vectors = np.linalg.eigh(gram * scale[:, None] * scale)
    kept = values > SMALLEST_EIGENVALUE * values[-1]
    turned = whole @ (scale[:, None] * vectors[:, kept] / np.sqrt(values[kept]))
    return np.asarray(np.square(turned).sum(axis=1))


def tamed(made: Expansion, values: Array, first: int = 1) -> Iterator[Expansion]:
    """The features from the `first` one on with ever longer ends of every number in one value."""
    longest = max(LEAST, int(LONGEST_TAIL * len(values)))
    for times in TAILS:
        if times * LEAST > longest:
            return
        parts, nodes, start = [], [], 0
        for column, node in zip(values.T, made.nodes, strict=True):
            block, layout = made.features[:, start : start + node.width], node
            start += node.width
            if node.kind == "number" and node.functions + node.powers > first:
                block, layout = _with_ends(block, node, column, times * LEAST, first)
            parts.append(block)
            nodes.append(layout)
        products = made.features[:, start:].copy()
        for column in products.T:
            _share_ends(column[:, None], column, times * LEAST)
        yield replace(made, features=np.concatenate([*parts, products], axis=1), nodes=tuple(nodes))


def _with_ends(block: Array, node: NodeLayout, column: Array, count: int, first: int) -> tuple[Array, NodeLayout]:
    """A number's features, of which those from the `first` one on share their mean over the rows at either end."""
    here = ~np.isnan(column)
    inside = block[here, : node.functions + node.powers].copy()
    _share_ends(inside[:, first:], column[here], count)
    functions = _uncorrelated(inside[:, : node.functions])
    made = np.concatenate([functions, inside[:, node.functions :]], axis=1)
    whole = np.zeros((len(column), made.shape[1] + node.mask))
    whole[here, : made.shape[1]] = made
    if node.mask:
        whole[:, -1] = block[:, -1]
    return whole, replace(node, functions=functions.shape[1])


def _share_ends(features: Array, column: Array, count: int) -> None:
    """Give the rows with the smallest and the largest values of a column, so many at least, one value each."""
    in_order = np.sort(column)
    if 2 * count < len(in_order) and in_order[count - 1] < in_order[-count]:
        for end in (column <= in_order[count - 1], column >= in_order[-count]):
            features[end] = features[end].mean(axis=0)


def _uncorrelated(functions: Array) -> Array:
    """Of mean 0, deviation 1 and uncorrelated again, in their order; up to the first that follows from those before."""
    whole = np.column_stack([np.ones(len(functions)), functions])
    q, r = np.linalg.qr(whole)
    size = np.abs(r.diagonal())
    short = np.flatnonzero(size[1:] < 1e-3 * np.linalg.norm(functions - functions.mean(axis=0), axis=0).clip(1e-12))
    count = int(short[0]) if len(short) else functions.shape[1]
    return np.asarray(q[:, 1 : count + 1] * np.sign(r.diagonal()[1 : count + 1]) * math.sqrt(len(functions)))


def heaviest(made: Expansion) -> int:
    """The column without which the largest leverage is least."""
    ends = np.cumsum([node.width for node in made.nodes])
    most = []
    for end, node in zip(ends.tolist(), made.nodes, strict=True):
        rest = np.delete(made.features, np.s_[end - node.width : end], axis=1)
        most.append(float(leverages(rest).max()))
    return int(np.argmin(most))
