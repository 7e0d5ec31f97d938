"""Metrics against scikit-learn, and weights that balance classes."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import Names
from sklearn.utils.class_weight import compute_class_weight

from veracausa.errors import InputError
from veracausa.training.evaluate import area_under_roc, balanced_weights, evaluate, loss_function


@settings(deadline=None)
@given(
    # Few different scores, so that ties are common.
    rows=st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), st.booleans()), min_size=2, max_size=60
    ).filter(lambda rows: len({label for _, label in rows}) == 2)
)
def test_the_area_under_the_curve_is_scikit_learns(rows):
    score, positive = torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])
    expected = reference.roc_auc_score(positive.numpy(), score.numpy())
    # Both are exact up to double rounding.
    assert area_under_roc(score, positive) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 5), rows=st.integers(12, 80))
def test_classification_scores_are_scikit_learns(seed, classes, rows):
    rng = torch.Generator().manual_seed(seed)
    output = torch.randn(rows, classes, generator=rng).mul(2).round() / 2
    target = torch.cat([torch.arange(classes), torch.randint(classes, (rows - classes,), generator=rng)])
    scores = evaluate("classification", output, target)
    probability = output.softmax(1).double()
    predicted = output.argmax(1)
    assert scores["accuracy"] == pytest.approx(reference.accuracy_score(target, predicted), abs=1e-12)
    # Recalls are means of float32 zeros and ones.
    assert scores["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(target, predicted), abs=1e-6)
    rows_sum_to_one = (probability / probability.sum(1, keepdim=True)).numpy()
    assert scores["loss"] == pytest.approx(reference.log_loss(target, rows_sum_to_one, labels=range(classes)), rel=1e-5)
    if classes == 2:
        expected = reference.roc_auc_score(target, probability[:, 1].numpy())
    else:
        areas = [reference.roc_auc_score(target == c, probability[:, c].numpy()) for c in range(classes)]
        expected = float(np.mean(areas))
    assert scores["auc"] == pytest.approx(expected, abs=1e-9)


def test_no_area_where_a_class_does_not_occur():
    assert "auc" not in evaluate("classification", torch.randn(4, 2), torch.zeros(4, dtype=torch.int64))
    assert "auc" not in evaluate("classification", torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))


def test_balanced_accuracy_counts_only_classes_that_occur():
    output = torch.eye(3)[[0, 0, 1, 0]]
    scores = evaluate("classification", output, torch.tensor([0, 0, 1, 1]))
    assert scores["balanced_accuracy"] == 0.75
    assert scores["accuracy"] == 0.75


@settings(deadline=None)
@given(seed=st.integers(0, 1000), offset=st.sampled_from([0.0, -3.0, 1e6]), rows=st.integers(2, 50))
def test_regression_scores_are_scikit_learns(seed, offset, rows):
    rng = torch.Generator().manual_seed(seed)
    target = (torch.randn(rows, generator=rng) * 2 + offset).float()
    output = (target + torch.randn(rows, generator=rng)).float().unsqueeze(1)
    scores = evaluate("regression", output, target)
    got, wanted = output.squeeze(1).double().numpy(), target.double().numpy()
    error = reference.mean_squared_error(wanted, got)
    assert scores["loss"] == pytest.approx(error, rel=1e-9)
    assert scores["rmse"] == pytest.approx(error**0.5, rel=1e-9)
    assert scores["mae"] == pytest.approx(reference.mean_absolute_error(wanted, got), rel=1e-9)
    if len(set(wanted)) > 1:
        assert scores["r2"] == pytest.approx(reference.r2_score(wanted, got), rel=1e-6, abs=1e-6)


def test_r2_of_targets_without_spread_is_no_division_by_zero():
    assert evaluate("regression", torch.zeros(3, 1), torch.ones(3))["r2"] == 0.0


@settings(deadline=None)
@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=50))
def test_balanced_weights_are_scikit_learns(labels):
    weights = balanced_weights(torch.tensor(labels), 4)
    present = np.unique(labels)
    # scikit-learn counts only the classes that occur.
    expected = compute_class_weight("balanced", classes=present, y=np.array(labels)) * len(present) / 4
    assert weights[present].tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    assert weights.dtype == torch.float32
    assert weights.isfinite().all()
    if len(present) == 4:
        assert float(weights[torch.tensor(labels)].mean()) == pytest.approx(1, rel=1e-5)


def test_the_losses():
    output, target = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    weights = (1.0, 2.0, 0.5)
    expected = torch.nn.functional.cross_entropy(output, target, torch.tensor(weights))
    assert torch.equal(loss_function("classification", target, 3, weights)(output, target), expected)
    balanced = torch.nn.functional.cross_entropy(output, target, balanced_weights(target, 3))
    assert torch.equal(loss_function("classification", target, 3, "balanced")(output, target), balanced)
    with pytest.raises(InputError, check=Names("training.class_weights", "2", "3")):
        loss_function("classification", target, 3, (1.0, 2.0))
    values = torch.randn(5)
    expected = (output[:, 0] - values).square().mean()
    torch.testing.assert_close(loss_function("regression", values, 1)(output[:, :1], values), expected)
