"""The sums over rows as a search reads them: covariances of all functions, and how many rows stand behind each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.methods.moments.expansion import NodeLayout, PairLayout

NOISY = 0.5
"""Noise of deviation 1 makes eigenvalues smaller by about so many times the root of their number, and more."""


@dataclass(frozen=True)
class SumTable:
    """Covariances of all columns' functions, in blocks of the same size; a block's tail may be empty."""

    nodes: tuple[NodeLayout, ...]
    rows: int
    blocks: Array
    """(d, M, d, M): covariance of function a of column i with function b of column j. Empty functions have variance 1
    and no covariance with others."""
    counts: Array
    """(d, d): rows in which both columns have a value."""
    square: Array
    """(d, d): E[x_i² x_j] of standardised numbers; nan where a column is no number."""
    cube: Array
    """(d, d): E[x_i³ x_j]."""
    squares: Array
    """(d, d): E[x_i² x_j²]."""
    pairs: Mapping[tuple[int, int], slice] = field(default_factory=dict)
    """Where products of two columns' functions lie in the two matrices that follow."""
    product_gram: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """(q, q): covariances of the products."""
    product_cross: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """(q, d·M): their covariances with all functions."""
    noise: Array | None = None
    """(d·M, d·M): the deviation of each covariance's noise; None: the sums are exact."""

    @property
    def d(self) -> int:
        return len(self.nodes)

    @property
    def correlations(self) -> Array:
        """(d, d): of the first functions."""
        return self.blocks[:, 0, :, 0]


def sum_table(
    gram: Array,
    nodes: Sequence[NodeLayout],
    rows: int,
    noise: Array | None = None,
    pairs: Sequence[PairLayout] = (),
) -> SumTable:
    """From sums over rows of products of all features, those of `nodes` first, then those of `pairs`.

    `noise` is the deviation of each sum's noise. Small eigenvalues are raised to what the noise leaves.
    """
    starts = np.cumsum([0, *(node.width for node in nodes)])
    d, most = len(nodes), max(node.functions for node in nodes)
    counts = _counts(gram, nodes, starts, rows)
    functions = [at + k for at, node in zip(starts, nodes, strict=False) for k in range(node.functions)]
    owner = np.array([i for i, node in enumerate(nodes) for _ in range(node.functions)])
    means = _means(gram, nodes, starts, functions, counts, rows)
    both = counts[owner][:, owner]
    covariance = gram[np.ix_(functions, functions)] / both
    # The mean of one column over the rows where the other one has a value.
    covariance = covariance - means[:, owner] * means[:, owner].T
    blurred = None if noise is None else noise[np.ix_(functions, functions)] / both
    covariance = _proper(covariance, blurred)
    place = np.array([i * most + k for i, node in enumerate(nodes) for k in range(node.functions)])
    flat = np.eye(d * most)
    flat[np.ix_(place, place)] = covariance
    blocks = flat.reshape(d, most, d, most)
    higher = _higher(gram, nodes, starts, counts)
    where, last = {}, int(starts[-1])
    for pair in pairs:
        where[pair.first, pair.second] = slice(last - int(starts[-1]), last - int(starts[-1]) + pair.width)
        last += pair.width
    products = slice(int(starts[-1]), last)
    cross = np.zeros((last - int(starts[-1]), d * most))
    cross[:, place] = gram[products][:, functions] / rows
    spread = None
    if blurred is not None:
        spread = np.zeros_like(flat)
        spread[np.ix_(place, place)] = blurred
    squared = gram[products, products] / rows
    return SumTable(tuple(nodes), rows, blocks, counts, *higher, where, squared, cross, spread)


def _counts(gram: Array, nodes: Sequence[NodeLayout], starts: Array, rows: int) -> Array:
    """Rows in which two columns both have a value. A column without gaps has no mask."""
    counts = np.full((len(nodes), len(nodes)), float(rows))
    masks = {i: int(starts[i]) + node.width - 1 for i, node in enumerate(nodes) if node.mask}
    for i, at in masks.items():
        counts[i, :] = counts[:, i] = gram[at, at]
    for i, at in masks.items():
        for j, other in masks.items():
            counts[i, j] = gram[at, other]
    return np.asarray(np.maximum(counts, 1.0))


def _means(
    gram: Array, nodes: Sequence[NodeLayout], starts: Array, functions: Sequence[int], counts: Array, rows: int
) -> Array:
    """(functions, d): the mean of each over the rows where column j has a value; 0 where nothing is missing."""
    means = np.zeros((len(functions), len(nodes)))
    owner = [i for i, node in enumerate(nodes) for _ in range(node.functions)]
    for j, node in enumerate(nodes):
        if node.mask:
            at = int(starts[j]) + node.width - 1
            means[:, j] = gram[functions, at] / counts[owner, j]
    return means


def _proper(covariance: Array, noise: Array | None) -> Array:
    """Symmetric, with no eigenvalue below what noise leaves, and with variances as they were at least."""
    covariance = (covariance + covariance.T) / 2
    if noise is None or not noise.any():
        return _raised(covariance, 1e-6)
    # In units in which all features have the same noise: raising a noisy curve must not move a quiet line.
    own = noise.diagonal()
    units = np.sqrt(own if (own > 0).all() else np.full(len(noise), noise.max()))
    return np.asarray(
        _raised(covariance / units / units[:, None], NOISY * np.sqrt(len(noise))) * units * units[:, None]
    )


def _raised(covariance: Array, least: float) -> Array:
    """With no eigenvalue below that."""
    values, vectors = np.linalg.eigh(covariance)
    if values[0] >= least:
        return covariance
    repaired = (vectors * np.maximum(values, least)) @ vectors.T
    return np.asarray((repaired + repaired.T) / 2)


def _higher(gram: Array, nodes: Sequence[NodeLayout], starts: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Third and fourth moments of pairs, from the columns that hold squares and cubes."""
    d = len(nodes)
    made = tuple(np.full((d, d), np.nan) for _ in range(3))
    numbers = [i for i, node in enumerate(nodes) if node.powers]
    if not numbers:
        return made  # type: ignore[return-value]
    first = [int(starts[i]) for i in numbers]
    second = [int(starts[i]) + nodes[i].functions for i in numbers]
    third = [at + 1 for at in second]
    inside = np.ix_(numbers, numbers)
    both = counts[inside]
    made[0][inside] = gram[np.ix_(second, first)] / both
    made[1][inside] = gram[np.ix_(third, first)] / both
    made[2][inside] = gram[np.ix_(second, second)] / both
    return made  # type: ignore[return-value]
