"""How good the joint predictions are: classification and regression metrics of whole splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from veracausa.errors import InputError
from veracausa.metrics.curves import behind_scores


def loss_function(task: str, labels: Tensor, classes: int, weights: str | tuple[float, ...] = "none") -> nn.Module:
    """Mean cross-entropy over the rows, its classes weighted as the job says, or mean squared error."""
    if task == "regression":
        return Regression()
    return nn.CrossEntropyLoss(weight=class_weights(weights, labels, classes))


class Regression(nn.Module):
    """Mean squared error of a single output."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.mse_loss(output.squeeze(1), target)


def class_weights(wanted: str | tuple[float, ...], labels: Tensor, classes: int) -> Tensor | None:
    """The weight of each class that a job's `training.class_weights` means; None: all alike."""
    if isinstance(wanted, str):
        return balanced_weights(labels, classes) if wanted == "balanced" else None
    check_weights(wanted, classes)
    return torch.tensor(wanted)


def check_weights(wanted: tuple[float, ...], classes: int) -> None:
    """Refuse another number of weights than there are classes."""
    if len(wanted) != classes:
        raise InputError(f"training.class_weights: {len(wanted)} weights for {classes} classes; give one a class")


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """Class weights inversely proportional to the classes' frequencies, mean one over the rows."""
    counts = torch.bincount(labels.cpu(), minlength=classes).clamp(min=1)
    return (len(labels) / (classes * counts)).to(torch.float32)


def evaluate(task: str, output: Tensor, target: Tensor) -> dict[str, float]:
    """The metrics of one split from the top model's raw outputs."""
    output, target = output.float().cpu(), target.cpu()
    if task == "regression":
        return _regression(output.squeeze(1), target)
    probability = output.softmax(1)
    predicted = output.argmax(1)
    present = torch.unique(target)
    recalls = [(predicted[target == label] == label).float().mean() for label in present]
    scores = {
        "loss": float(nn.functional.cross_entropy(output, target)),
        "accuracy": float((predicted == target).double().mean()),
        "balanced_accuracy": float(torch.stack(recalls).mean()),
        # What accuracy is to be read beside: who always says this class scores as much.
        "commonest_class": float(torch.bincount(target).max()) / len(target),
    }
    # Area under the ROC curve is defined only where both sides occur.
    if output.shape[1] == 2 and len(present) == 2:
        scores["auc"] = area_under_roc(probability[:, 1], target == 1)
    elif output.shape[1] > 2 and len(present) == output.shape[1]:
        areas = [area_under_roc(probability[:, label], target == label) for label in range(output.shape[1])]
        scores["auc"] = sum(areas) / len(areas)
    return scores


def evaluation(task: str, output: Tensor, target: Tensor, labels: Mapping[Any, Tensor | None]) -> dict[str, Any]:
    """What stands behind the scores of one split, for the active party's own page; `labels`: those of every split."""
    if task == "regression":
        return behind_scores(output.float().cpu().squeeze(1).double().numpy(), target.cpu().double().numpy())
    told = behind_scores(output.float().cpu().softmax(1).double().numpy(), target.cpu().numpy())
    balance = {
        split: torch.bincount(own.cpu().long(), minlength=output.shape[1]).tolist()
        for split, own in labels.items()
        if own is not None and len(own)
    }
    return {**told, "balance": balance}


def area_under_roc(score: Tensor, positive: Tensor) -> float:
    """The chance that a positive row scores above a negative one, ties counting half (Mann–Whitney)."""
    values, place = torch.unique(score.double(), return_inverse=True)
    counts = torch.bincount(place, minlength=len(values)).double()
    rank = (counts.cumsum(0) - (counts - 1) / 2)[place]
    positives = int(positive.sum())
    pairs = positives * (len(score) - positives)
    return float((rank[positive].sum() - positives * (positives + 1) / 2) / pairs)


def _regression(output: Tensor, target: Tensor) -> dict[str, float]:
    # In double throughout: of targets far from zero, float32 would lose the spread.
    output, target = output.double(), target.double()
    error = output - target
    total = (target - target.mean()).square().sum()
    return {
        "loss": float(error.square().mean()),
        "rmse": float(error.square().mean().sqrt()),
        "mae": float(error.abs().mean()),
        "r2": float(1 - error.square().sum() / total) if total > 0 else 0.0,
    }
