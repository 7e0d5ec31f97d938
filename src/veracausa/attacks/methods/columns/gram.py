"""The Gram matrix: how a feature changes from one opening to the next tells how near people are in foreign columns.

Between two openings of a batch the weights grew by Xᵀ·S, and the target chose S. So its features changed by X_b·Xᵀ·S:
known numbers times the products of people's foreign columns. The columns follow up to a rotation, with nobody's rows
known: their principal components, the distance between any two people, and all that rests on distances. Products are
the same in every search and for every target, so what several of them opened is solved together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.columns import NEGLIGIBLE, ColumnAttack, ColumnGuess, ColumnView, Opened, beside


@column_attacks.register("gram")
class GramMatrix(ColumnAttack):
    """Solves for the products of people's foreign columns from two openings of each batch."""

    about = "solves for how near any two people are in the foreign columns, from two openings of each batch"
    order, colluding = 9, True

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        """Principal components of the foreign columns: the columns, but for a rotation."""
        if not hasattr(view, "openings") or not hasattr(view, "history"):
            return None
        found = components(beside(view.history), view.openings, view.columns)
        return None if found is None else ColumnGuess(found)


def components(features: Array, openings: Sequence[Sequence[Opened]], columns: int) -> Array | None:
    """(n, at most `columns`) Y with Y·Yᵀ near X·Xᵀ; None where no batch was opened twice.

    `features`, (n, m), are of any time: they tell the space in which people's rows lie. X is U·M in its coordinates U,
    and what changes between two openings of a batch is linear in M·Mᵀ. Each of `openings` is of weights of its own.
    """
    left, singular, _ = np.linalg.svd(features, full_matrices=False)
    kept = singular[:columns] ** 2 > max(NEGLIGIBLE * float(np.sum(singular**2)), 1e-30)
    u = left[:, :columns][:, kept] * np.sqrt(len(features))
    rank = u.shape[1]
    pairs = [(opened, *pair) for opened in openings for pair in _twice(opened)]
    if not pairs or not rank:
        return None
    normal, wanted = np.zeros((rank**2, rank**2)), np.zeros(rank**2)
    for opened, first, second in pairs:
        change, grown = _between(u, opened, first, second)
        rows = u[opened[first].rows]
        normal += np.kron(grown @ grown.T, rows.T @ rows)
        wanted += (rows.T @ change @ grown.T).flatten(order="F")
    solved = np.linalg.lstsq(normal, wanted, rcond=1e-12)[0].reshape(rank, rank, order="F")
    level, turned = np.linalg.eigh((solved + solved.T) / 2)
    return np.asarray(u @ (turned * np.sqrt(np.maximum(level, 0)))[:, ::-1])


def _twice(opened: Sequence[Opened]) -> list[tuple[int, int]]:
    """Neighbouring openings of the same rows."""
    last: dict[bytes, int] = {}
    found = []
    for at, batch in enumerate(opened):
        key = batch.rows.tobytes()
        if key in last:
            found.append((last[key], at))
        last[key] = at
    return found


def _between(u: Array, opened: Sequence[Opened], first: int, second: int) -> tuple[Array, Array]:
    """What changed between two openings, and what the weights grew by, as Uᵀ·S.

    The validator's factors scale every foreign column's weights by a number of its own. Their mean stands for them.
    """
    scale, grown = np.ones(opened[first].steps.shape[1]), np.zeros((u.shape[1], opened[first].steps.shape[1]))
    for batch in opened[first:second]:
        grown += u[batch.rows].T @ batch.steps
        if batch.factors is not None:
            width = batch.steps.shape[1] // batch.factors.shape[1]
            factor = np.repeat(batch.factors.mean(0), width)
            grown, scale = grown * factor, scale * factor
    return opened[second].features - opened[first].features * scale, grown
