"""How a party's part of a row is kept within the norm that noise covers, at little cost to what a search reads.

Noise grows with the square of that norm. So the functions of a column share a fixed part of it: 1 for a number itself
and 1 for all its curves together, 2 for a nominal column. More functions then leave the noise on straight lines as it
is. A row that is too long gives up curves first: a row that is shortened as a whole bends the straight lines in it, and
bent lines look like edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.methods.moments.expansion import NodeLayout, PairLayout

LONGER = 1.5
"""So many times its mean a row's squared norm may be. Less shortens many rows, and more makes all sums noisier."""


def usual_clip(columns: int, functions: int, products: bool, longer: float = LONGER) -> float:
    """The norm that covers most rows of so many numbers."""
    return math.sqrt(longer * columns * (min(functions, 2) + products))


def curve_unit(functions: int) -> float:
    """What 1 of a number's curves stands for under noise."""
    return math.sqrt(max(functions - 1, 1))


def units_under_noise(nodes: Sequence[NodeLayout], pairs: Sequence[PairLayout]) -> Array:
    """(width,): what 1 of each feature stands for; squares and cubes are not summed up under noise."""
    parts: list[float] = []
    for node in nodes:
        if node.kind == "nominal":
            parts += [math.sqrt(max(node.functions / 2, 1))] * node.functions
        else:
            parts += [1.0] + [curve_unit(node.functions)] * (node.functions - 1)
        parts += [1.0] * (node.powers + node.mask)
    products = sum(pair.width for pair in pairs)
    return np.array(parts + [math.sqrt(max(products / max(len(nodes), 1), 1))] * products)


def shortened(features: Array, nodes: Sequence[NodeLayout], clip: float) -> Array:
    """The features with curves and products made smaller in rows that are longer than `clip`.

    What is still too long then is cut as a whole, by `crypto.moments`.
    """
    first = np.zeros(features.shape[1], dtype=bool)
    start = 0
    for node in nodes:
        first[start : start + (node.functions if node.kind == "nominal" else 1)] = True
        first[start + node.functions : start + node.width] = True
        start += node.width
    lines, curves = (np.square(features[:, chosen]).sum(axis=1) for chosen in (first, ~first))
    room = np.maximum(clip**2 - lines, 0.0)
    share = np.sqrt(np.minimum(1.0, room / np.maximum(curves, 1e-300)))
    return np.where(first, features, features * share[:, None])
