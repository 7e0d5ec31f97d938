"""How far a learned causal graph is from the true one; matrices with row = cause, column = effect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veracausa.errors import InputError

TIE = 1e-9
"""Two values of a sortability closer than this, relative to the larger, count as equal."""


@dataclass(frozen=True)
class EdgeScores:
    """Precision, recall and F1 of a set of edges, beside the counts; nan where there is nothing to divide by."""

    found: float
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        return _ratio(self.found, self.predicted)

    @property
    def recall(self) -> float:
        return _ratio(self.found, self.true)

    @property
    def f1(self) -> float:
        return _ratio(2 * self.found, self.predicted + self.true)


def shd(truth: ArrayLike, predicted: ArrayLike) -> int:
    """Structural Hamming distance: pairs of columns whose edge is missing, added or reversed; each costs 1.

    Args:
        truth: The true graph, a square matrix that is not 0 where row causes column.
        predicted: The learned one, of the same shape.
    """
    true, guess = _graphs(truth, predicted)
    differs = true != guess
    return int(np.triu(differs | differs.T, 1).sum())


def shd_reversal_2(truth: ArrayLike, predicted: ArrayLike) -> int:
    """The variant in which a reversed edge costs 2: one missing and one added."""
    true, guess = _graphs(truth, predicted)
    return int((true != guess).sum())


def empty_graph_shd(truth: ArrayLike) -> int:
    """What a graph without edges scores: a method that is not below this has found nothing of use."""
    true = np.asarray(truth) != 0
    return shd(true, np.zeros_like(true))


def directed_scores(truth: ArrayLike, predicted: ArrayLike, among: ArrayLike | None = None) -> EdgeScores:
    """Scores of the directed edges; with `among`, of those only that it marks."""
    true, guess = _graphs(truth, predicted)
    if among is not None:
        marked = np.asarray(among) != 0
        true, guess = true & marked, guess & marked
    return EdgeScores(int((true & guess).sum()), int(guess.sum()), int(true.sum()))


def skeleton_scores(truth: ArrayLike, predicted: ArrayLike) -> EdgeScores:
    """Scores of the edges without their directions."""
    true, guess = _graphs(truth, predicted)
    return directed_scores(np.triu(true | true.T, 1), np.triu(guess | guess.T, 1))


def party_scores(truth: ArrayLike, predicted: ArrayLike, owners: Sequence[object]) -> tuple[EdgeScores, EdgeScores]:
    """Scores of the edges inside a party, and of those between two; `owners` names each column's party."""
    if len(owners) != len(np.asarray(truth)):
        raise InputError(f"owners: {len(owners)} names for {len(np.asarray(truth))} columns; name each column's party")
    same = np.array([[one == other for other in owners] for one in owners])
    return directed_scores(truth, predicted, same), directed_scores(truth, predicted, ~same)


def graph_scores(
    truth: ArrayLike, predicted: ArrayLike, owners: Sequence[object] | None = None
) -> dict[str, float | int]:
    """All of the above in one row of a table.

    Args:
        truth: The true graph, a square matrix that is not 0 where row causes column.
        predicted: The learned one, of the same shape.
        owners: Each column's party; with it the row has F1 inside and between parties.
    """
    edges, skeleton = directed_scores(truth, predicted), skeleton_scores(truth, predicted)
    row: dict[str, float | int] = {
        "shd": shd(truth, predicted),
        "shd_reversal_2": shd_reversal_2(truth, predicted),
        "empty_graph_shd": empty_graph_shd(truth),
        "precision": edges.precision,
        "recall": edges.recall,
        "f1": edges.f1,
        "skeleton_f1": skeleton.f1,
        "edges": edges.predicted,
        "true_edges": edges.true,
    }
    if owners is not None:
        inside, between = party_scores(truth, predicted, owners)
        row |= {"intra_party_f1": inside.f1, "inter_party_f1": between.f1}
    return row


def var_sortability(values: ArrayLike, truth: ArrayLike) -> float:
    """The share of causal paths along which the variance grows (Reisach et al. 2021): 1 or 0 give the order away."""
    return sortability(np.asarray(values, dtype=float).var(axis=0), truth)


def r2_sortability(values: ArrayLike, truth: ArrayLike) -> float:
    """The share of causal paths along which the R² given all other columns grows (Reisach et al. 2023)."""
    return sortability(r2_given_others(values), truth)


def r2_given_others(values: ArrayLike) -> NDArray[np.float64]:
    """Each column's R² in a linear regression on all the others."""
    columns = np.asarray(values, dtype=float)
    spread = columns.std(axis=0)
    standard = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1)
    r2 = np.zeros(standard.shape[1])
    for j in range(standard.shape[1]):
        others, own = np.delete(standard, j, axis=1), standard[:, j]
        if others.shape[1] and spread[j] > 0:
            fitted = others @ np.linalg.lstsq(others, own, rcond=None)[0]
            r2[j] = 1 - ((own - fitted) ** 2).mean()
    return r2


def sortability(order: ArrayLike, truth: ArrayLike) -> float:
    """How well `order` sorts causes before effects: over pairs joined by a path, once for each length of such paths.

    A rise counts 1 and a tie a half; nan for a graph without edges.
    """
    rank, edges = np.asarray(order, dtype=float), np.asarray(truth) != 0
    scale = np.maximum(np.abs(rank)[:, None], np.abs(rank)[None, :])
    rise = rank[None, :] - rank[:, None]
    score = np.where(np.abs(rise) <= TIE * scale, 0.5, (rise > 0).astype(float))
    paths, total, sorted_ones = edges.copy(), 0, 0.0
    for _ in range(len(edges)):
        if not paths.any():
            break
        total += int(paths.sum())
        sorted_ones += float(score[paths].sum())
        paths = (paths.astype(float) @ edges) > 0
    return _ratio(sorted_ones, total)


def _graphs(truth: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    true, guess = np.asarray(truth) != 0, np.asarray(predicted) != 0
    if true.ndim != 2 or true.shape[0] != true.shape[1] or true.shape != guess.shape:
        raise InputError(f"two graphs of shapes {true.shape} and {guess.shape} can not be compared; give equal squares")
    return true, guess


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
