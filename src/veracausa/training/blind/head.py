"""The blind head: a ridge regression solved from sums over rows, with its strength and its calibration from them too.

The sums are the Gram matrix G of all columns side by side: the regressors x (every party's features and presence
columns), the active party's constant 1 and the labels y. Everything follows from its blocks:

- means s / n from the constant's row, and centred sums C = G − s sᵀ / n;
- the ridge W = (C_xx + λ)⁻¹ C_xy, and its residual sum of squares, C_yy − 2 Wᵀ C_xy + Wᵀ C_xx W;
- its degrees of freedom, Σ dᵢ / (dᵢ + λ) over the eigenvalues of C_xx, hence generalised cross-validation;
- the classes' means of x from x'y, and the pooled covariance within classes, hence calibrated log-odds.

A party that lacks a row has zeros there and 0 in its presence column, which is one more regressor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.errors import InputError, RunError
from veracausa.training.blind.calibration import Calibration, ClassWeights, calibration_of
from veracausa.training.blind.ridge import CentredSums, RidgeFit, solve

if TYPE_CHECKING:
    from torch import Tensor

Task = Literal["classification", "regression"]


class SumsOfRows(Protocol):
    """What the head needs of `crypto.moments.Moments`."""

    @property
    def rows(self) -> int: ...
    @property
    def slices(self) -> Mapping[str, slice]: ...
    @property
    def gram(self) -> Array: ...
    @property
    def noise(self) -> float | Array: ...


@dataclass(frozen=True)
class BlindHead:
    """A linear model of all parties' columns, cut into one block of weights a party.

    The scores of a row are the sum of `weights[party].T @ columns` over the parties. They are what prediction opens:
    one number for a regression, one less than there are classes otherwise, in units of the label's spread. `outputs`
    makes of them what a top model gives: logits whose softmax is calibrated, or the target in its own units.
    """

    task: Task
    weights: Mapping[str, Array]
    """(width of the party's block, scores); of the active party its own features alone."""
    bias: Array
    """(scores,): added to the sum over parties."""
    calibration: Calibration
    fit: Mapping[str, float]
    """How well it fits the training rows, from sums: `ridge`, `degrees`, `r2`, `gcv_r2`, ..."""

    @property
    def scores_width(self) -> int:
        """How many numbers of a row prediction opens."""
        return len(self.bias)

    @property
    def largest(self) -> float:
        """The largest weight by size: what a fixed-point scale has to hold."""
        return max((float(np.abs(block).max()) for block in self.weights.values() if block.size), default=0.0)

    def part(self, party: str, columns: Array) -> Array:
        """(n, scores): one party's part of the scores of these rows."""
        return np.asarray(columns, np.float64) @ self.weights[party]

    def outputs(self, scores: Array) -> Tensor:
        """(n, classes) logits or (n, 1) targets, float32, of summed scores; the bias is added here."""
        return torch.from_numpy(self.calibration.outputs(np.asarray(scores, np.float64) + self.bias)).float()

    def refined(self, scores: Array, labels: Array) -> BlindHead:
        """The same head, calibrated on validation rows too, whose scores without bias were opened anyway."""
        return replace(self, calibration=self.calibration.refined(np.asarray(scores) + self.bias, labels))

    def state(self) -> dict[str, Any]:
        """What `of` needs: plain JSON values and tensors."""
        return {
            "version": 1,
            "task": self.task,
            "weights": {party: torch.from_numpy(block.copy()) for party, block in self.weights.items()},
            "bias": torch.from_numpy(self.bias.copy()),
            "calibration": self.calibration.state(),
            "fit": dict(self.fit),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> BlindHead:
        """The head that `state` was taken of; another tree is refused."""
        try:
            if state["version"] != 1 or state["task"] not in ("classification", "regression"):
                raise InputError("the head was saved by another version; train again")
            head = cls(
                state["task"],
                {str(party): _matrix(block) for party, block in state["weights"].items()},
                np.asarray(state["bias"], np.float64),
                Calibration.of(state["calibration"]),
                {str(name): float(value) for name, value in state["fit"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the saved head cannot be read ({error}); put an intact copy in its place") from None
        if any(block.shape[1] != len(head.bias) for block in head.weights.values()):
            raise InputError("the saved head's weights do not fit each other; put an intact copy in its place")
        return head


def _matrix(block: Any) -> Array:
    matrix = np.asarray(block, np.float64)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError("weights are no finite matrix")
    return matrix


def fit_head(
    moments: SumsOfRows,
    own: slice,
    label: slice,
    task: Task,
    classes: int,
    ridge: float | Literal["gcv"] = "gcv",
    class_weights: ClassWeights = "none",
    target: tuple[float, float] = (0.0, 1.0),
    answer_noise: float = 0.003,
) -> BlindHead:
    """The head of these sums. Nothing but sums is looked at, so nothing of a single row is opened.

    `own` are the active party's features, `label` its label columns: one 0/1 column a class, or the target, less
    `target[0]`, divided by `target[1]`. The constant 1 stands right before the labels. All columns of the others are
    regressors. `ridge` is λ a row, or `"gcv"`: generalised cross-validation, which also knows the noise that was added
    to the sums. Class weights change the classes' shares only: sums of squares of one class alone are not there.
    `answer_noise` is the deviation that rounding adds to an opened score: `blind.step` times √(passive parties / 12).
    """
    active, regressors = _layout(moments, own, label, task, classes)
    sums = CentredSums.of(
        moments.gram,
        moments.noise,
        moments.rows,
        regressors,
        own.stop - own.start,
        np.arange(label.start, label.stop),
        label.start - 1,
    )
    if task == "classification" and bool((sums.label_sums <= 0).any()):
        raise RunError("blind training: a class has no rows in the sums; remove it or join it to another one")
    found = solve(sums, ridge)
    calibration = calibration_of(sums, found, task, class_weights, target, answer_noise)
    # The outputs of classes sum to one, so one of them says nothing: what is opened are contrasts.
    mix = calibration.basis if task == "classification" else np.eye(1)
    mixed = found.weights @ mix
    bias = (sums.label_means - sums.means @ found.weights) @ mix
    places = {party: np.arange(at.start, at.stop) for party, at in moments.slices.items()}
    places[active] = np.arange(own.start, own.stop)
    position = {int(column): number for number, column in enumerate(regressors)}
    weights = {party: mixed[[position[int(column)] for column in columns]] for party, columns in places.items()}
    return BlindHead(task, weights, bias, calibration, _facts(sums, found, moments.noise))


def _layout(moments: SumsOfRows, own: slice, label: slice, task: Task, classes: int) -> tuple[str, NDArray[np.int64]]:
    """The active party's name, and the columns that explain, in order."""
    active = next((party for party, at in moments.slices.items() if at.start <= label.start < at.stop), None)
    width = classes if task == "classification" else 1
    if active is None or label.stop - label.start != width:
        raise InputError(f"blind training: the sums hold no {width} label columns where they should be")
    block = moments.slices[active]
    if (own.start, own.stop, label.stop) != (block.start, label.start - 1, block.stop):
        raise InputError("blind training: the active party's block is to be its features, the constant and the labels")
    outside = [np.arange(at.start, at.stop) for party, at in moments.slices.items() if party != active]
    regressors = np.concatenate([np.arange(own.start, own.stop), *outside]).astype(np.int64)
    if not len(regressors):
        raise InputError("blind training: no party has a feature; name columns for one")
    return active, regressors


def _facts(sums: CentredSums, found: RidgeFit, noise: float | Array) -> dict[str, float]:
    total = float(np.trace(sums.yy))
    return {
        "ridge": found.ridge,
        "degrees": found.degrees,
        "r2": 1 - found.residual / total if total > 0 else 0.0,
        # By generalised cross-validation: what rows that were not trained on should give.
        "gcv_r2": 1 - found.criterion * sums.rows / total if total > 0 else 0.0,
        "noise": float(np.max(noise)),
    }
