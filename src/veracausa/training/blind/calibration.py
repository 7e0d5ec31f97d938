"""Scores as calibrated log-odds: a Gaussian for each class with means and covariance that follow from sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.training.blind.ridge import CentredSums, RidgeFit

LARGEST_LOGIT = 1000.0
"""Classes that the sums separate without error would have infinite log-odds."""


@dataclass(frozen=True)
class Calibration:
    """How scores become outputs: logits = basis · scores + offset, or target = scale · score + offset."""

    basis: Array
    """(scores, outputs): of classes, orthonormal contrasts."""
    offset: Array
    """(outputs,)"""

    def outputs(self, scores: Array) -> Array:
        return scores @ self.basis + self.offset

    def state(self) -> dict[str, Any]:
        return {"basis": torch.from_numpy(self.basis.copy()), "offset": torch.from_numpy(self.offset.copy())}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Calibration:
        basis, offset = (np.asarray(state[name], np.float64) for name in ("basis", "offset"))
        if basis.ndim != 2 or offset.shape != (basis.shape[1],):
            raise InputError("the saved calibration does not fit itself; put an intact copy in its place")
        return cls(basis, offset)


def contrasts(classes: int) -> Array:
    """(classes, classes − 1), orthonormal columns that sum to zero (Helmert): what differs between classes."""
    basis = np.zeros((classes, classes - 1))
    for number in range(1, classes):
        basis[:number, number - 1] = -1.0
        basis[number, number - 1] = number
    unit: Array = basis / np.sqrt((basis**2).sum(0))
    return unit


def class_shares(counts: Array, wanted: Literal["none", "balanced"] | tuple[float, ...]) -> Array:
    """How likely each class is before a row is seen, once classes are weighted as the job says."""
    if isinstance(wanted, str):
        weights = np.ones(len(counts)) if wanted == "none" else 1 / counts
    else:
        weights = np.asarray(wanted, np.float64)
        if weights.shape != counts.shape:
            raise InputError(f"training.class_weights: {len(weights)} weights for {len(counts)} classes")
    shares: Array = counts * weights / (counts * weights).sum()
    return shares


def calibration_of(
    sums: CentredSums,
    found: RidgeFit,
    task: Literal["classification", "regression"],
    class_weights: Literal["none", "balanced"] | tuple[float, ...],
    target: tuple[float, float],
) -> tuple[Calibration, Array]:
    """The calibration, and the matrix (k, scores) that turns the ridge's outputs into scores.

    Scores f = Wᵀx of a class are taken as Gaussian, with mean Wᵀμ_c and the covariance WᵀΣW of all classes alike. By
    Bayes the log-odds are linear in f. They are what is opened, in contrasts: the classes' logits without their mean.
    """
    if task == "regression":
        mean, scale = target
        return Calibration(np.full((1, 1), float(scale)), np.array([float(mean)])), np.eye(1)
    classes = len(sums.label_sums)
    basis = contrasts(classes)
    # The outputs sum to one, so one of them says nothing: work in contrasts from the start.
    weights = found.weights @ basis
    centred = sums.raw_xy / sums.label_sums - sums.means[:, None]
    means = (weights.T @ centred).T
    between = (means * sums.label_sums[:, None]).T @ means
    within = (weights.T @ sums.xx @ weights - between) / sums.rows
    precision = _inverse(within, between / sums.rows)
    slopes = (precision @ means.T).T
    levels = np.log(class_shares(sums.label_sums, class_weights)) - 0.5 * (slopes * means).sum(1)
    bounded = min(1.0, LARGEST_LOGIT / max(float(np.abs(slopes @ means.T).max()), 1e-300))
    slopes, levels = bounded * slopes, bounded * levels
    # Logits = slopes · (basisᵀ f − basisᵀ f̄) + levels, opened as contrasts of the logits.
    centre = basis.T @ sums.label_means
    offset = levels - slopes @ centre
    return Calibration(basis.T, offset - offset.mean()), basis @ slopes.T @ basis


def _inverse(within: Array, between: Array) -> Array:
    """Of the covariance within classes, with a floor of a millionth where classes do not scatter at all."""
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    floor = 1e-6 * max(float(np.trace(within + between)), 1e-300)
    inverse: Array = (vectors / np.maximum(values, floor)) @ vectors.T
    return inverse
