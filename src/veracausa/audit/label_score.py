"""How many labels an attack got, beside always naming the commonest class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.attacks.labels.base import LabelGuess
from veracausa.training.evaluate import area_under_roc


@dataclass(frozen=True)
class LabelScore:
    """One attack's accuracy on the labels."""

    accuracy: float
    prior: float
    """The accuracy of the commonest class."""
    advantage: float
    up_to_permutation: bool
    """Whether the groups were given their best names by the truth, which no attacker has."""
    auc: float | None = None
    """For a binary task that the attack ranks: the chance that a row of class 1 stands above one of class 0."""


def score_labels(guess: LabelGuess, labels: Tensor, classes: int) -> LabelScore:
    """Score an attack's guess; one that knows only the groups is scored at the groups' best naming."""
    labels, found = labels.cpu(), guess.classes.cpu()
    if len(labels) != len(found):
        raise ValueError(f"{len(found)} guesses for {len(labels)} labels")
    if guess.up_to_permutation:
        found = best_naming(found, labels, classes)[found]
    accuracy, prior = int((found == labels).sum()) / len(labels), majority_prior(labels)
    auc = None
    if guess.score is not None and classes == 2 and len(torch.unique(labels)) == 2:
        auc = area_under_roc(guess.score.cpu(), labels == 1)
    return LabelScore(accuracy, prior, advantage(accuracy, prior), guess.up_to_permutation, auc)


def majority_prior(labels: Tensor) -> float:
    """The share of the commonest class."""
    return int(torch.unique(labels, return_counts=True)[1].max()) / len(labels)


def advantage(accuracy: float, prior: float) -> float:
    """(accuracy − prior) / (1 − prior): 1 is all labels, 0 no more than the prior, below 0 less; 0 if all are equal."""
    return (accuracy - prior) / (1 - prior) if prior < 1 else 0.0


def best_naming(groups: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes,) the class of each group, each class once, that makes most rows right."""
    inside = (labels >= 0) & (labels < classes)
    counts = torch.bincount(groups[inside] * classes + labels[inside], minlength=classes * classes)
    return best_assignment(counts.view(classes, classes))


def best_assignment(gain: Tensor) -> Tensor:
    """(n,) for each row of a square matrix a column of its own, with the highest sum (the Hungarian method).

    Rows come in one after the other. Each looks for the cheapest chain of moves that frees a column for it, by prices
    that keep every reduced cost at or above 0.
    """
    cost = (gain.max() - gain).double().tolist()
    size = len(cost)
    row_price, column_price = [0.0] * size, [0.0] * size
    owner: list[int | None] = [None] * size
    for new in range(size):
        slack, came_from = [float("inf")] * size, [-1] * size
        settled = [False] * size
        row, column = new, -1
        while True:
            for other in range(size):
                if not settled[other]:
                    reduced = cost[row][other] - row_price[row] - column_price[other]
                    if reduced < slack[other]:
                        slack[other], came_from[other] = reduced, column
            step, nearest = min((slack[other], other) for other in range(size) if not settled[other])
            row_price[new] += step
            for other in range(size):
                if settled[other]:
                    column_price[other] -= step
                    row_price[owner[other]] += step  # type: ignore[index]
                else:
                    slack[other] -= step
            settled[nearest] = True
            column = nearest
            if owner[nearest] is None:
                break
            row = owner[nearest]  # type: ignore[assignment]
        while column != -1:
            previous = came_from[column]
            owner[column] = new if previous == -1 else owner[previous]
            column = previous
    chosen = torch.empty(size, dtype=torch.int64)
    for column, row_or_none in enumerate(owner):
        chosen[row_or_none] = column
    return chosen
