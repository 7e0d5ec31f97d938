"""How near attacks on sums come to a party's rows: R² of numbers, cells right of categories, beside own columns alone.

R² is the share of a column's squares that a guess avoids beside the column's mean, the best blind guess. What own
columns tell with rows of other people needs no sums: the gain over that is what the sums tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.attacks.columns import ColumnAttack, ColumnGuess
from veracausa.audit.column_scores import EXACT
from veracausa.audit.sums_system import VictimColumn, explained
from veracausa.audit.sums_views import SumsSeat
from veracausa.metrics.blind_bounds import membership_bound, score_membership

ALONE = "own columns and rows of other people"
MEAN = "mean of the column"
BASELINES = (MEAN, ALONE)
Places = NDArray[np.int64]


@dataclass(frozen=True)
class ColumnsRead:
    """What a guess says of each column, and what the same attacker says without any sum."""

    r2: tuple[float, ...]
    """Of numbers, and of columns of two values."""
    without: tuple[float, ...]
    cells: tuple[float, ...] = ()
    """The share of cells that are right, of categories."""
    cells_without: tuple[float, ...] = ()

    def joined(self, other: ColumnsRead) -> ColumnsRead:
        return ColumnsRead(
            self.r2 + other.r2,
            self.without + other.without,
            self.cells + other.cells,
            self.cells_without + other.cells_without,
        )

    def told(self) -> dict[str, float]:
        """As the record has it."""
        found: dict[str, float] = {}
        if self.r2:
            gains = np.array(self.r2) - np.array(self.without)
            found |= {
                "mean": float(np.mean(self.r2)),
                "most": float(np.max(self.r2)),
                "read": float(np.mean(np.array(self.r2) >= EXACT**2)),
                "gain": float(gains.mean()),
                "most_gain": float(gains.max()),
            }
        if self.cells:
            gains = np.array(self.cells) - np.array(self.cells_without)
            found |= {"cells": float(np.mean(self.cells)), "cells_gain": float(gains.mean())}
        return found


NOTHING = ColumnsRead((), ())


def scored(seat: SumsSeat, guess: ColumnGuess) -> ColumnsRead:
    """One guess, over the rows that it is of, beside what is expected without sums."""
    rows = np.arange(seat.view.rows) if guess.at is None else guess.at
    values = np.nan_to_num(guess.values, nan=0.0)
    if guess.unordered_rows:
        values = _matched(values, seat.columns, rows)
    r2, cells, cells_without = [], [], []
    for column in seat.columns:
        own, expected = values[:, column.curve.guesses], seat.expected[rows][:, column.curve.guesses]
        if not column.nominal:
            r2.append(explained(own[:, 0], column.truth[rows]))
        if column.kind != "number":
            cells.append(right(column, own, rows))
            blind = right(column, np.zeros_like(expected), rows, most_frequent=True)
            cells_without.append(max(right(column, expected, rows), blind))
    return ColumnsRead(tuple(r2), seat.alone, tuple(cells), tuple(cells_without))


def right(column: VictimColumn, guess: Array, rows: Places, most_frequent: bool = False) -> float:
    """The share of cells whose category is the likeliest by the guess. How categories are coded is told.

    A guess is a mixture of categories, and has the shares of the mixture. Categories that are merged have one code; the
    most frequent of them is taken.
    """
    truth, curve = column.truth[rows], column.curve
    here = ~np.isnan(truth)
    codes = np.column_stack([curve.responses, np.ones(len(curve.values))])
    shares = np.column_stack([guess, np.ones(len(guess))]) @ np.linalg.pinv(codes)
    likeliest = (shares + 1e-6 * curve.chances / curve.chances.sum()).argmax(axis=1)
    place = np.full(len(rows), curve.chances.argmax()) if most_frequent else likeliest
    return float((np.abs(curve.values[place] - truth)[here] < 1e-9).mean())


def _matched(values: Array, columns: Sequence[VictimColumn], rows: Places) -> Array:
    """Guesses put to the rows that they are nearest to: an attacker without ids does not know which is whose."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    numbers = [column for column in columns if not column.nominal]
    truth = np.nan_to_num(np.column_stack([column.truth[rows] for column in numbers]))
    guesses = values[:, [int(column.curve.guesses[0]) for column in numbers]]
    if np.ptp(guesses, axis=0).max() == 0:
        return values
    places, whose = linear_sum_assignment(cdist(guesses, truth, "sqeuclidean"))
    ordered = np.empty_like(values)
    ordered[whose] = values[places]
    return ordered


def attacked(seats: Sequence[SumsSeat], attack: ColumnAttack, epsilon: float | None, delta: float) -> dict[str, Any]:
    """The attack from every seat, ready to be written down; empty where no seat gives it anything to work on."""
    read, notes, membership = NOTHING, [], []
    views = 0
    for seat in seats:
        guess = attack.read(seat.view)
        if guess is None:
            continue
        views += 1
        notes.append(attack.notes())
        if guess.membership is not None:
            assert seat.member is not None
            membership.append(_membership(guess.membership, seat.member, epsilon, delta))
        else:
            read = read.joined(scored(seat, guess))
    if not views:
        return {}
    said = {name: float(np.mean([each[name] for each in notes])) for name in notes[0]}
    return {**read.told(), **(membership[0] if membership else {}), "views": views, "notes": said}


def baselines(seats: Sequence[SumsSeat]) -> dict[str, Any]:
    """What the same attackers reach without any sum: the blind guess, and own columns with rows of other people."""
    found = {MEAN: NOTHING, ALONE: NOTHING}
    for seat in seats:
        without = ColumnGuess(seat.expected, ordered=True)
        alone = scored(seat, without)
        found[ALONE] = found[ALONE].joined(ColumnsRead(alone.without, alone.without, alone.cells, alone.cells))
        rows = np.arange(seat.view.rows)
        cells = tuple(
            right(column, np.zeros((len(rows), len(column.curve.guesses))), rows, most_frequent=True)
            for column in seat.columns
            if column.kind != "number"
        )
        zero = tuple(0.0 for _ in alone.r2)
        found[MEAN] = found[MEAN].joined(ColumnsRead(zero, zero, cells, cells))
    gains = ("gain", "most_gain", "cells_gain")
    return {
        name: {what: value for what, value in read.told().items() if what not in gains} | {"views": len(seats)}
        for name, read in found.items()
    }


def _membership(
    statistics: Mapping[str, Array], member: Mask, epsilon: float | None, delta: float
) -> dict[str, float | str | None]:
    inside = torch.from_numpy(member)
    found = {name: score_membership(torch.from_numpy(values), inside) for name, values in statistics.items()}
    best = max(found, key=lambda name: found[name].auc)
    bound = None if epsilon is None else membership_bound(epsilon, delta)
    return {"statistic": best, "auc": found[best].auc, "advantage": found[best].advantage, "bound": bound}
