"""A bottleneck: of every target attribute fewer numbers are opened than its network has hidden units.

The encoder's weights are V·M with M public and orthonormal, (numbers, h): V is what is shared, X·V is what is opened,
and the target spreads it over its hidden units by M. ‖V·M‖ = ‖V‖, so strengths mean what they meant. With fewer numbers
a row than there are foreign columns one opening does not determine the row; many openings, with weights that move, may.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mixing(numbers: int, width: int) -> Array:
    """M (numbers, width), the same for everybody: cosines, whose rows are orthonormal."""
    at = np.arange(width) + 0.5
    rows = np.cos(np.pi * np.outer(np.arange(numbers), at) / width)
    # The first row would give every hidden unit the same input; turn them all by fixed signs.
    rows *= np.where(np.arange(width) % 2, -1.0, 1.0)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def spread(opened: Array, mixed: Array) -> Array:
    """(n, targets·numbers) as (n, targets·h), on the target's side."""
    numbers, _ = mixed.shape
    return np.asarray((opened.reshape(len(opened), -1, numbers) @ mixed).reshape(len(opened), -1))


def gathered(gradient: Array, mixed: Array) -> Array:
    """The gradient by the hidden units' inputs, as the gradient by what was opened."""
    _, width = mixed.shape
    return np.asarray((gradient.reshape(len(gradient), -1, width) @ mixed.T).reshape(len(gradient), -1))


def widest(own: int, foreign: int) -> int:
    """The most numbers a target attribute with which a row opens fewer than there are foreign columns; 0: none."""
    return (foreign - 1) // own
