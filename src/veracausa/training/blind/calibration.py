"""Scores as calibrated classes: two readings of them that follow from sums, and their mean.

A ridge on 0/1 labels estimates the classes' probabilities themselves, which is right where scores lie between 0 and 1
and wrong where classes are far apart. A Gaussian for each class, with means and covariance from sums, gives log-odds by
Bayes, which is right for features that add up from many parts and too sure where scores are skewed. Their mean was
better calibrated than either, on training rows held out of tables of census and bank data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.training.blind.ridge import CentredSums, RidgeFit

SMALLEST_CHANCE = 0.003
"""No class is less likely by the linear reading, which can even be negative."""
FEWEST_ROWS = 20
"""A class: with fewer rows the calibration from sums is kept."""

ClassWeights = Literal["none", "balanced"] | tuple[float, ...]


@dataclass(frozen=True)
class Calibration:
    """How scores become outputs. Of classes scores are contrasts z = Bᵀf of the ridge's outputs f, which sum to one."""

    basis: Array
    """(classes, scores), orthonormal; of a regression the target's spread, (1, 1)."""
    slopes: Array
    """(classes, scores): log-odds of the Gaussian reading, slopes · z + levels; of a regression empty."""
    levels: Array
    """(classes,); of a regression the target's mean."""
    weights: Array
    """(classes,): by how much a class's chance is multiplied."""
    factor: float = 1.0
    shift: Array | None = None
    """What `refined` found: logits are multiplied by `factor`, and `shift` is added."""

    def outputs(self, scores: Array) -> Array:
        """(n, classes) logits or (n, 1) targets."""
        if not len(self.slopes):
            return scores @ self.basis.T + self.levels
        logits = self._logits(scores)
        return self.factor * logits + (0 if self.shift is None else self.shift)

    def _logits(self, scores: Array) -> Array:
        linear = np.maximum(scores @ self.basis.T + 1 / len(self.basis), SMALLEST_CHANCE)
        chances = (linear / linear.sum(1, keepdims=True) + _softmax(scores @ self.slopes.T + self.levels)) / 2
        logits = np.log(chances * self.weights)
        centred: Array = logits - logits.mean(1, keepdims=True)
        return centred

    def refined(self, scores: Array, labels: Array) -> Calibration:
        """A calibration that also fits rows whose scores were opened anyway: one factor and one shift a class.

        Use validation rows, never test rows. Fewer than `FEWEST_ROWS` rows of a class leave it as it was.
        """
        from scipy.optimize import minimize

        classes = len(self.slopes)
        labels = np.asarray(labels, np.int64)
        if not classes or np.bincount(labels, minlength=classes).min() < FEWEST_ROWS:
            return self
        logits, told = self._logits(scores), np.eye(classes)[labels]

        def loss(at: Array) -> tuple[float, Array]:
            moved = at[0] * logits + at[1:]
            chances = _softmax(moved)
            error = (chances - told) / len(labels)
            value = -float(np.log(np.maximum((chances * told).sum(1), 1e-300)).mean())
            # A weak pull to where it was, worth a row of each class: few rows must not turn it upside down.
            pull = classes / len(labels) * (at - start)
            return value + float(pull @ (at - start)) / 2, np.concatenate(
                [[(error * logits).sum()], error.sum(0)]
            ) + pull

        start = np.concatenate([[1.0], np.zeros(classes)])
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.1, 10.0), *[(-10.0, 10.0)] * classes]).x
        return replace(self, factor=float(found[0]), shift=np.asarray(found[1:], np.float64))

    def state(self) -> dict[str, Any]:
        tensors = {name: torch.from_numpy(getattr(self, name).copy()) for name in _ARRAYS}
        return {**tensors, "factor": self.factor, "shift": None if self.shift is None else self.shift.tolist()}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Calibration:
        """The calibration that `state` was taken of; a tree whose parts do not fit is refused."""
        basis, slopes, levels, weights = (np.asarray(state[name], np.float64) for name in _ARRAYS)
        shift = None if state["shift"] is None else np.asarray(state["shift"], np.float64)
        outputs = (len(basis),)
        fits = basis.ndim == 2 and levels.shape == weights.shape == outputs and slopes.shape in (basis.shape, (0, 0))
        if not fits or (shift is not None and shift.shape != outputs):
            raise InputError("the saved calibration does not fit itself; put an intact copy in its place")
        return cls(basis, slopes, levels, weights, float(state["factor"]), shift)


_ARRAYS = ("basis", "slopes", "levels", "weights")


def _softmax(logits: Array) -> Array:
    raised = np.exp(logits - logits.max(1, keepdims=True))
    chances: Array = raised / raised.sum(1, keepdims=True)
    return chances


def contrasts(classes: int) -> Array:
    """(classes, classes − 1), orthonormal columns that sum to zero (Helmert): what differs between classes."""
    basis = np.zeros((classes, classes - 1))
    for number in range(1, classes):
        basis[:number, number - 1] = -1.0
        basis[number, number - 1] = number
    unit: Array = basis / np.sqrt((basis**2).sum(0))
    return unit


def relative_weights(counts: Array, wanted: ClassWeights) -> Array:
    """By how much each class counts, as the job's `training.class_weights` says; one row has weight one on average."""
    if isinstance(wanted, str):
        weights = np.ones(len(counts)) if wanted == "none" else counts.sum() / (len(counts) * counts)
    else:
        weights = np.asarray(wanted, np.float64)
        if weights.shape != counts.shape or not (weights > 0).all():
            raise InputError(f"training.class_weights: {len(counts)} weights above 0 are needed, one a class")
    return weights


def calibration_of(
    sums: CentredSums,
    found: RidgeFit,
    task: Literal["classification", "regression"],
    class_weights: ClassWeights,
    target: tuple[float, float],
    answer_noise: float = 0.0,
) -> Calibration:
    """The calibration of this ridge, from the sums it was solved from.

    The scores Vᵀx of class c, V = W·basis, are taken as Gaussian with mean Vᵀμ_c and covariance VᵀΣV. μ_c is the mean
    of x over the class, Σ the covariance within classes, all classes alike.
    `answer_noise` is the standard deviation of what the parties' rounding adds to a score.
    """
    if task == "regression":
        mean, spread = target
        return Calibration(np.full((1, 1), float(spread)), np.zeros((0, 0)), np.full(1, float(mean)), np.ones(1))
    counts = sums.label_sums
    basis = contrasts(len(counts))
    # A column of x'y is the sum of x over a class, less its share of the whole.
    means = (found.agreement / counts).T @ basis
    between = (means * counts[:, None]).T @ means / sums.rows
    within = basis.T @ found.scatter @ basis / sums.rows - between
    # A party rounds what it answers. Scores that say less than that must not be stretched into sure classes.
    within += answer_noise**2 * np.eye(len(within))
    slopes = means @ _inverse(within, between, found.doubt / sums.rows)
    # Means are those of scores less their overall mean; scores as opened have it.
    centre = basis.T @ sums.label_means
    levels = np.log(counts / counts.sum()) - 0.5 * (slopes * means).sum(1) - slopes @ centre
    return Calibration(basis, slopes, levels, relative_weights(counts, class_weights))


def _inverse(within: Array, between: Array, doubt: float) -> Array:
    """Of the covariance within classes, with a floor of a thousandth, or of the noise that may be left in it."""
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    floor = max(1e-3 * float(np.trace(within + between)), doubt, 1e-300)
    inverse: Array = (vectors / np.maximum(values, floor)) @ vectors.T
    return inverse
