"""Leakage, the headline privacy number: how much better an attack does than a guess without payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from veracausa.metrics.identification import squared_distances
from veracausa.metrics.ridge import best_penalty, fit_ridge

_NOTHING_TO_LEARN = 1e-12
_ROWS_AT_ONCE = 256


def leakage(mse_attack: float, mse_blind: float) -> float:
    """max(0, 1 − MSE_attack / MSE_blind); 0 where a blind guess is already perfect."""
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


def mirror(other_half: Tensor, axis: int = -1) -> Tensor:
    """The neighbouring half of the same picture, mirrored at the cut: a guess for whoever holds that half.

    `axis` is the one the picture was cut along: -1 for left and right, -2 for top and bottom.
    """
    return other_half.flip(axis)


def nearest_auxiliary(payloads: Tensor, auxiliary_payloads: Tensor, auxiliary: Tensor) -> Tensor:
    """The auxiliary row whose payload is nearest to each victim's: no blind guess, but the simplest attack there is."""
    known = auxiliary_payloads.flatten(1)
    parts = [squared_distances(part, known).argmin(1) for part in torch.split(payloads.flatten(1), _ROWS_AT_ONCE)]
    return auxiliary[torch.cat(parts).to(auxiliary.device)]


def trivial_guesses(
    auxiliary: Tensor,
    count: int,
    *,
    auxiliary_labels: Tensor | None = None,
    labels: Tensor | None = None,
    other_half: Tensor | None = None,
    axis: int = -1,
    payloads: Tensor | None = None,
    auxiliary_payloads: Tensor | None = None,
) -> dict[str, Tensor]:
    """The guesses that belong in every table beside an attack's, by name; those that can be made from what is given.

    A mirrored half is a guess only where both halves have one shape; the nearest auxiliary row needs the victims'
    payloads and the auxiliary rows' own.
    """
    guesses = {
        "grey": torch.full_like(auxiliary[:1], 0.5).expand(count, *auxiliary.shape[1:]),
        "mean colour": mean_colour(auxiliary, count),
        "mean image": mean_image(auxiliary, count),
    }
    if auxiliary_labels is not None and labels is not None and not labels.is_floating_point():
        guesses["class mean"] = class_mean_image(auxiliary, auxiliary_labels, labels)
    if other_half is not None and auxiliary.ndim == 4 and other_half.shape[1:] == auxiliary.shape[1:]:
        guesses["mirror"] = mirror(other_half, axis).to(auxiliary)
    if payloads is not None and auxiliary_payloads is not None:
        guesses["nearest auxiliary"] = nearest_auxiliary(payloads, auxiliary_payloads, auxiliary)
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

    `labels` are the victims' classes, or their targets in a regression; `own` is what the attacker holds of the same
    victims itself. Both need their auxiliary twin.
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


def table_leakage(
    guess: Tensor, truth: Tensor, blind: Mapping[str, Tensor], groups: Sequence[int] | None = None
) -> float:
    """Leakage of (n, features) table rows: the mean over the original columns.

    `groups` has for each feature the number of the column it came from. A column of one feature is numeric, 1 − MSE /
    blind MSE; one of several is a category, 1 − error / blind error, by the largest feature. Without `groups` all are
    numeric. Columns that a blind guess has right already teach nothing and do not count.
    """
    found = [column for column in column_leakages(guess, truth, blind, groups) if column is not None]
    return sum(found) / len(found) if found else 0.0


def column_leakages(
    guess: Tensor, truth: Tensor, blind: Mapping[str, Tensor], groups: Sequence[int] | None = None
) -> list[float | None]:
    """`table_leakage` of every original column; None where there is nothing to learn."""
    groups = tuple(range(truth.shape[1])) if groups is None else tuple(groups)
    if len(groups) != truth.shape[1]:
        raise ValueError(f"{len(groups)} group numbers for {truth.shape[1]} features")
    leakages: list[float | None] = []
    for group in dict.fromkeys(groups):
        at = [feature for feature, of in enumerate(groups) if of == group]
        error = _squared_error if len(at) == 1 else _wrong_share
        lowest = min(error(other[:, at], truth[:, at]) for other in blind.values())
        known = lowest <= _NOTHING_TO_LEARN
        leakages.append(None if known else leakage(error(guess[:, at], truth[:, at]), lowest))
    return leakages


def _squared_error(guess: Tensor, truth: Tensor) -> float:
    return float((guess - truth).square().mean())


def _wrong_share(guess: Tensor, truth: Tensor) -> float:
    # A value that training never saw is all zeros: no category that could be guessed.
    known = truth.amax(1) > 0
    if not known.any():
        return 0.0
    return float((guess[known].argmax(1) != truth[known].argmax(1)).double().mean())
