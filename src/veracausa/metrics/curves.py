"""What stands behind a score on held-out rows: ROC curve, confusion matrix, calibration, how targets follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from veracausa.arrays import Array

MOST_CLASSES = 50
"""Of more classes no matrix is kept: nobody can read it."""
MOST_CURVES = 6
"""Of more classes no ROC curves are kept."""
POINTS = 60


def roc_curve(scores: Array, positive: Array) -> list[list[float]]:
    """Shares of false and of true alarms, [0, 0] to [1, 1], at up to `POINTS` thresholds; both sides must occur."""
    order = np.argsort(-scores, kind="stable")
    hit, ranked = positive[order].astype(bool), scores[order]
    # Rows of one score are told apart by no threshold.
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    true, false = np.cumsum(hit)[last] / hit.sum(), np.cumsum(~hit)[last] / (~hit).sum()
    chosen = np.unique(np.linspace(0, len(last) - 1, min(POINTS, len(last))).round().astype(int))
    return [[0.0, 0.0], *([round(float(false[i]), 5), round(float(true[i]), 5)] for i in chosen)]


def confusion(predicted: Array, target: Array, classes: int) -> list[list[int]]:
    """Counts by true class (row) and predicted class (column)."""
    counts = np.bincount(target.astype(int) * classes + predicted.astype(int), minlength=classes * classes)
    found: list[list[int]] = counts.reshape(classes, classes).tolist()
    return found


def reliability(said: Array, right: Array, bins: int = 10) -> list[dict[str, float]]:
    """Of the rows of each tenth of what was said: what was said on average, how often it was right, how many rows."""
    place = np.minimum((said * bins).astype(int), bins - 1)
    return [
        {"said": float(said[place == b].mean()), "right": float(right[place == b].mean()), "rows": int(count)}
        for b, count in enumerate(np.bincount(place, minlength=bins))
        if count
    ]


def followed(predicted: Array, target: Array, groups: int = 10) -> list[dict[str, float]]:
    """Rows in groups of equal size by the prediction: its mean, the targets' mean and spread, how many rows."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(groups, len(predicted)))
    return [
        {
            "predicted": float(predicted[part].mean()),
            "true": float(target[part].mean()),
            "spread": float(target[part].std()),
            "rows": len(part),
        }
        for part in parts
    ]


def behind_scores(outputs: Array, target: Array) -> dict[str, Any]:
    """All of it, as plain JSON: of class chances (rows, classes), or of predictions (rows,) of a number."""
    if outputs.ndim == 1:
        return {"followed": followed(outputs, target)}
    classes = outputs.shape[1]
    predicted = outputs.argmax(1)
    if classes == 2:
        told: dict[str, Any] = {"calibration": reliability(outputs[:, 1], target == 1)}
    else:
        told = {"calibration": reliability(outputs.max(1), predicted == target)}
    if classes <= MOST_CLASSES:
        told["confusion"] = confusion(predicted, target, classes)
    shown = [1] if classes == 2 else range(classes) if classes <= MOST_CURVES else []
    both = [label for label in shown if 0 < int((target == label).sum()) < len(target)]
    told["roc"] = {str(label): roc_curve(outputs[:, label], target == label) for label in both}
    return told
