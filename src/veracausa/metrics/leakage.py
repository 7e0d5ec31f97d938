"""Leakage, the headline privacy number: how much better an attack does than a guess without payload.

The blind guesses are here too, and the ridge regression that makes the linear ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_NOTHING_TO_LEARN = 1e-12
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Of ridge regression, from which held-out rows choose."""


def leakage(mse_attack: float, mse_blind: float) -> float:
    """The share of a blind guess's error that an attack avoids: max(0, 1 − MSE_attack / MSE_blind).

    Args:
        mse_attack: The attack's mean squared error.
        mse_blind: That of the best guess without payload (`blind_mse`) on the same rows.

    Returns:
        0 where the attack is no better, or where a blind guess is already perfect; 1 for a perfect copy.
    """
    if mse_blind <= _NOTHING_TO_LEARN:
        return 0.0
    return max(0.0, 1.0 - mse_attack / mse_blind)


def grey(truth: Tensor) -> Tensor:
    """0.5 everywhere."""
    return torch.full_like(truth, 0.5)


def mean_colour(auxiliary: Tensor, count: int) -> Tensor:
    """The auxiliary pictures' mean of every channel, everywhere."""
    colour = auxiliary.flatten(2).mean((0, 2)) if auxiliary.ndim == 4 else auxiliary.mean().expand(auxiliary.shape[1])
    return colour.view(1, -1, *[1] * (auxiliary.ndim - 2)).expand(count, *auxiliary.shape[1:])


def mean_image(auxiliary: Tensor, count: int) -> Tensor:
    """The mean auxiliary row."""
    return auxiliary.mean(0, keepdim=True).expand(count, *auxiliary.shape[1:])


def class_mean_image(auxiliary: Tensor, auxiliary_labels: Tensor, labels: Tensor) -> Tensor:
    """The mean auxiliary row of each victim's class, which the active party knows.

    A class the auxiliary rows lack gets the mean of all.
    """
    labels = labels.to(auxiliary.device)
    guesses = mean_image(auxiliary, len(labels)).clone()
    for label in torch.unique(labels):
        same = auxiliary_labels.to(auxiliary.device) == label
        if same.any():
            guesses[labels == label] = auxiliary[same].mean(0)
    return guesses


def ridge_guess(own_auxiliary: Tensor, auxiliary: Tensor, own: Tensor) -> Tensor:
    """The victims' rows, predicted linearly from what the attacker holds of them itself.

    Fitted on auxiliary rows; the penalty is the one that does best on a held-out tenth of them.
    """
    kept = len(auxiliary) // 10
    penalty = 1.0
    if kept:
        learnt, held = slice(kept, None), slice(kept)
        penalty, _ = best_penalty(own_auxiliary[learnt], auxiliary[learnt], own_auxiliary[held], auxiliary[held])
    return fit_ridge(own_auxiliary, auxiliary, penalty)(own).to(auxiliary.dtype)


def blind_guesses(
    auxiliary: Tensor,
    count: int,
    *,
    auxiliary_labels: Tensor | None = None,
    labels: Tensor | None = None,
    own_auxiliary: Tensor | None = None,
    own: Tensor | None = None,
    pixels: bool = True,
) -> dict[str, Tensor]:
    """What an attacker can say of `count` victims without their payloads: a guess of each kind by name.

    Args:
        auxiliary: Rows of other people that the attacker has, (m, *).
        count: How many victims there are.
        auxiliary_labels: Classes of the auxiliary rows, or their targets in a regression.
        labels: The same of the victims. It needs `auxiliary_labels`.
        own_auxiliary: What the attacker itself holds of the people of the auxiliary rows.
        own: What it holds of the victims. It needs `own_auxiliary`.
        pixels: Whether rows are pictures in [0, 1], so that guesses are clipped.

    Returns:
        (count, *) guesses: "mean image", and "class mean" or "target", and "own columns" where they can be made.
    """
    guesses = {"mean image": mean_image(auxiliary, count)}
    if auxiliary_labels is not None and labels is not None:
        if labels.is_floating_point():
            target = labels.view(-1, 1).to(auxiliary)
            guesses["target"] = ridge_guess(auxiliary_labels.view(-1, 1).to(auxiliary), auxiliary, target)
        else:
            guesses["class mean"] = class_mean_image(auxiliary, auxiliary_labels, labels)
    if own_auxiliary is not None and own is not None:
        guesses["own columns"] = ridge_guess(own_auxiliary, auxiliary, own)
    return {name: guess.clamp(0, 1) for name, guess in guesses.items()} if pixels else guesses


def blind_mse(guesses: Mapping[str, Tensor], truth: Tensor) -> tuple[float, str]:
    """MSE_blind, the lowest of the guesses' errors on these victims, and the name of that guess."""
    return min((float((guess - truth).square().mean()), name) for name, guess in guesses.items())


@dataclass(frozen=True)
class ColumnErrors:
    """Errors of an attack on rows of a table, (n, original columns), beside those of each column's best blind guess.

    NaN where there is nothing that could be right: a category that training never saw.
    """

    attack: Tensor
    blind: Tensor

    @classmethod
    def of(
        cls, guess: Tensor, truth: Tensor, blind: Mapping[str, Tensor], groups: Sequence[int] | None = None
    ) -> ColumnErrors:
        """`groups` has for each feature the number of the column it came from; without it each is a column.

        A column of one feature is numeric: the error is squared. One of several is a category: the error is 1 where the
        largest feature is the wrong one.
        """
        groups = tuple(range(truth.shape[1])) if groups is None else tuple(groups)
        if len(groups) != truth.shape[1]:
            raise ValueError(f"{len(groups)} group numbers for {truth.shape[1]} features")
        attack, best = [], []
        for group in dict.fromkeys(groups):
            at = [feature for feature, of in enumerate(groups) if of == group]
            error = _squared_errors if len(at) == 1 else _wrong
            attack.append(error(guess[:, at], truth[:, at]))
            others = [error(other[:, at], truth[:, at]) for other in blind.values()]
            best.append(min(others, key=lambda errors: float(errors.nanmean().nan_to_num())))
        return cls(torch.stack(attack, 1), torch.stack(best, 1))

    @property
    def counted(self) -> Tensor:
        """(columns,) False where a blind guess is right already: such a column teaches nothing."""
        return self.blind.nanmean(0).nan_to_num() > _NOTHING_TO_LEARN

    def by_row(self) -> tuple[Tensor, Tensor]:
        """(n,) errors of the attack and of the blind guess, summed over the columns that count."""
        counted = self.counted
        return self.attack[:, counted].nansum(1), self.blind[:, counted].nansum(1)

    def by_column(self) -> list[float | None]:
        """The leakage of every column by itself; None where there is nothing to learn."""
        means = zip(self.attack.nanmean(0).tolist(), self.blind.nanmean(0).tolist(), self.counted.tolist(), strict=True)
        return [leakage(attack, blind) if counted else None for attack, blind, counted in means]

    def in_all(self) -> float:
        """The leakage of the table: errors are added up over rows and columns first, and the sum is clipped at 0.

        A mean of columns that were clipped one by one would call an attack a leak that guesses worse than blindly.
        """
        attack, blind = self.by_row()
        return leakage(float(attack.sum()), float(blind.sum()))


def table_leakage(
    guess: Tensor, truth: Tensor, blind: Mapping[str, Tensor], groups: Sequence[int] | None = None
) -> float:
    """Leakage of (n, features) table rows, over all original columns."""
    return ColumnErrors.of(guess, truth, blind, groups).in_all()


def column_leakages(
    guess: Tensor, truth: Tensor, blind: Mapping[str, Tensor], groups: Sequence[int] | None = None
) -> list[float | None]:
    """Leakage of every original column by itself; None where there is nothing to learn."""
    return ColumnErrors.of(guess, truth, blind, groups).by_column()


def _squared_errors(guess: Tensor, truth: Tensor) -> Tensor:
    return (guess - truth).square().squeeze(1).double()


def _wrong(guess: Tensor, truth: Tensor) -> Tensor:
    # A value that training never saw is all zeros: no category that could be guessed.
    wrong = (guess.argmax(1) != truth.argmax(1)).double()
    return torch.where(truth.amax(1) > 0, wrong, float("nan"))


@dataclass(frozen=True)
class Ridge:
    """A fitted map from inputs (n, *) to rows of one shape; computes in float64."""

    mean: Tensor
    weights: Tensor
    offset: Tensor
    shape: torch.Size

    def __call__(self, inputs: Tensor) -> Tensor:
        predicted = (inputs.flatten(1).double() - self.mean) @ self.weights + self.offset
        return predicted.to(inputs.dtype).view(len(inputs), *self.shape)


def fit_ridge(inputs: Tensor, rows: Tensor, penalty: float) -> Ridge:
    """W = (XᵀX/n + λI)⁻¹ XᵀY/n of standardised X and centred Y; by (XXᵀ/n + λI)⁻¹ where X is wider than long."""
    x, y = inputs.flatten(1).double(), rows.flatten(1).double()
    mean, offset, count = x.mean(0), y.mean(0), len(x)
    scale = x.std(0, correction=0)
    scale = torch.where(scale > 1e-9, scale, 1)
    x, y = (x - mean) / scale, y - offset
    if x.shape[1] <= count:
        gram = x.T @ x / count
        gram.diagonal().add_(penalty)
        weights = torch.linalg.solve(gram, x.T @ y / count)
    else:
        gram = x @ x.T / count
        gram.diagonal().add_(penalty)
        weights = x.T @ torch.linalg.solve(gram, y / count)
    return Ridge(mean, weights / scale.unsqueeze(1), offset, rows.shape[1:])


def best_penalty(
    inputs: Tensor, rows: Tensor, held_inputs: Tensor, held_rows: Tensor, penalties: Sequence[float] = PENALTIES
) -> tuple[float, float]:
    """The penalty that does best on held-out rows, and its mean squared error there."""
    errors = {
        penalty: float((fit_ridge(inputs, rows, penalty)(held_inputs) - held_rows).square().mean())
        for penalty in penalties
    }
    best = min(errors, key=lambda penalty: errors[penalty])
    return best, errors[best]
