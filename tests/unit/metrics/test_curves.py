"""What stands behind a score agrees with scikit-learn, adds up, and survives rows of one kind."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score

from veracausa.metrics.curves import MOST_CLASSES, behind_scores, confusion, followed, reliability, roc_curve

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("ties", [False, True])
def test_the_area_under_the_curve_is_scikit_learns(ties: bool) -> None:
    scores, positive = RNG.random(5000), RNG.random(5000) < 0.3
    scores = (scores + positive) / 2
    scores = scores.round(1) if ties else scores
    curve = np.array(roc_curve(scores, positive))
    assert curve[0].tolist() == [0.0, 0.0]
    assert curve[-1].tolist() == [1.0, 1.0]
    assert (np.diff(curve, axis=0) >= 0).all()
    # Some sixty of the thresholds are kept: a trapezium cuts a little of what is curved.
    assert np.trapezoid(curve[:, 1], curve[:, 0]) == pytest.approx(roc_auc_score(positive, scores), abs=2e-3)


def test_the_matrix_is_scikit_learns() -> None:
    target, predicted = RNG.integers(0, 4, 300), RNG.integers(0, 4, 300)
    assert confusion(predicted, target, 4) == confusion_matrix(target, predicted, labels=range(4)).tolist()


def test_calibration_counts_every_row_once() -> None:
    said = np.array([0.0, 0.05, 0.5, 0.55, 1.0])
    bins = reliability(said, np.array([0, 0, 1, 0, 1]))
    assert [entry["rows"] for entry in bins] == [2, 2, 1]
    assert [entry["right"] for entry in bins] == [0.0, 0.5, 1.0]
    assert bins[1]["said"] == pytest.approx(0.525)


def test_groups_of_a_regression_follow_the_prediction() -> None:
    predicted = RNG.normal(size=95)
    groups = followed(predicted, 2 * predicted)
    assert sum(group["rows"] for group in groups) == 95
    assert [group["predicted"] for group in groups] == sorted(group["predicted"] for group in groups)
    assert all(group["true"] == pytest.approx(2 * group["predicted"]) for group in groups)
    assert followed(np.array([1.0]), np.array([2.0])) == [{"predicted": 1.0, "true": 2.0, "spread": 0.0, "rows": 1}]


def test_a_class_that_does_not_occur_has_no_curve_and_many_classes_have_no_matrix() -> None:
    chances = RNG.dirichlet(np.ones(3), 40)
    told = behind_scores(chances, np.repeat([0, 1], 20))
    assert set(told["roc"]) == {"0", "1"}
    assert behind_scores(chances[:, :2], np.zeros(40, int))["roc"] == {}
    many = behind_scores(RNG.dirichlet(np.ones(MOST_CLASSES + 1), 60), RNG.integers(0, MOST_CLASSES, 60))
    assert "confusion" not in many
    json.dumps(many, allow_nan=False)
