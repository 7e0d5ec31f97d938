"""Single attributes of a picture, and how well a guess has them: a mean over pixels can hide one that is read whole.

Brightness is the mean lightness of CIELAB, contrast its deviation over the picture, hue the mean a and b (how far to
red, green, yellow and blue).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from veracausa.data.colour import rgb_to_lab

_UNITS = 100.0
_SAME = 1e-12


def picture_attributes(pictures: Tensor) -> dict[str, Tensor]:
    """Attribute -> (n, k) numbers of (n, c, h, w) pictures in [0, 1]; grey ones have no hue."""
    colour = pictures.shape[1] == 3
    lab = rgb_to_lab(pictures.float()) / _UNITS if colour else pictures.float()
    light = lab[:, :1].flatten(1)
    found = {"brightness": light.mean(1, keepdim=True), "contrast": light.std(1, correction=0, keepdim=True)}
    return {**found, "hue": lab[:, 1:].flatten(2).mean(2)} if colour else found


def attribute_scores(
    guess: Tensor, truth: Tensor, auxiliary: Tensor, groups: tuple[Tensor, Tensor] | None = None
) -> list[dict[str, Any]]:
    """For each attribute R² of the guess, and of the best guess without the payload; what is read best comes first.

    That guess is the mean of the auxiliary pictures, or of those of the same class, where `groups` has the classes of
    auxiliary rows and of the victims. R² is 1 for the truth and 0 for the victims' own mean, and may be negative.
    """
    known, read, right = (picture_attributes(pictures) for pictures in (auxiliary, guess, truth))
    scores = []
    for name, values in right.items():
        spread = float((values - values.mean(0)).square().sum())
        if spread <= _SAME * len(values):
            continue  # every victim has the same: there is nothing to read
        blind = [known[name].mean(0).expand_as(values)]
        if groups is not None:
            blind.append(_class_means(known[name], *groups).to(values))
        without = min(float((values - each.to(values)).square().sum()) for each in blind)
        error = float((values - read[name].to(values)).square().sum())
        scores.append({"attribute": name, "r2": 1 - error / spread, "blind": 1 - without / spread})
    return sorted(scores, key=lambda score: score["blind"] - score["r2"])


def _class_means(values: Tensor, classes: Tensor, wanted: Tensor) -> Tensor:
    """(n, k): of each wanted class the mean of its values; of a class that is not there the mean of all."""
    classes, wanted = classes.to(values.device), wanted.to(values.device)
    found = values.mean(0).expand(len(wanted), -1).clone()
    for label in torch.unique(wanted).tolist():
        if (own := classes == label).any():
            found[wanted == label] = values[own].mean(0)
    return found
