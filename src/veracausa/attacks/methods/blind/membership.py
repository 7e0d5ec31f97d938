"""Was this row trained on? From the scores opened of it, and from the sums over all training rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindAttack, BlindReading, BlindView, Release
from veracausa.errors import InputError

_JITTER = 1e-6


@blind_attacks.register("membership")
class Membership(BlindAttack):
    """How well a row's scores fit its label, and how well its features fit the released sums."""

    surface = "membership"
    needs = Grant.LABELS
    uses = Grant.AUXILIARY | Grant.WEIGHTS | Grant.KNOWN_ROWS
    about = "the active party asks of a row it knows whether it was trained on"
    order = 8
    situations = ("member by scores", "member by sums", "member by sums, epsilon = 1")

    def guess(self, view: BlindView) -> BlindReading:
        found: dict[str, Tensor] = {}
        if hasattr(view, "scores"):
            found |= of_scores(view.scores, view.labels, view.classes)
        if hasattr(view, "release") and hasattr(view, "features"):
            found |= of_moments(view.release, view.features, getattr(view, "auxiliary_features", None))
        if not found:
            raise InputError(f"{self.options.name}: there are neither opened scores nor moments to look at")
        return BlindReading(membership=found)


def of_scores(scores: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """A model fits what it was trained on a little better."""
    if not classes or labels.is_floating_point():
        return {"fit": -(scores.double().flatten(1)[:, 0] - labels.double()).square()}
    hot = F.one_hot(labels.long(), classes).double()
    if scores.shape[1] == 1:
        hot = hot[:, 1:]
        return {"fit": -(scores.double() - hot).square().sum(1), "confidence": scores.double()[:, 0].abs()}
    true = (scores.double() * hot).sum(1)
    others = scores.double().masked_fill(hot.bool(), -torch.inf).amax(1)
    return {
        "fit": -(scores.double() - hot).square().sum(1),
        "margin": true - others,
        "confidence": scores.double().amax(1),
    }


def of_moments(release: Release, features: Tensor, auxiliary: Tensor | None) -> dict[str, Tensor]:
    """Training rows lie a little nearer to the sums that they are part of.

    `leverage` is the row's distance in the released moments. `likelihood` takes off the same distance in the moments of
    rows that were not trained on: under Gaussian features it is the likelihood ratio, the best test there is.
    """
    values = features.double().numpy()
    block = release.of_victim() / release.rows
    found = {"leverage": -_distance(values, block)}
    if auxiliary is not None and len(auxiliary) > values.shape[1]:
        rows = auxiliary.double().numpy()
        found["likelihood"] = _distance(values, rows.T @ rows / len(rows)) + found["leverage"]
    return {name: torch.from_numpy(statistic) for name, statistic in found.items()}


def _distance(values: np.ndarray, moments: np.ndarray) -> np.ndarray:
    moments = (moments + moments.T) / 2
    level, directions = np.linalg.eigh(moments)
    # Noise may leave directions with a negative sum, which say nothing.
    level = np.maximum(level, _JITTER * max(float(level[-1]), 1e-30))
    turned = values @ directions
    return np.asarray(np.square(turned) @ (1 / level))
