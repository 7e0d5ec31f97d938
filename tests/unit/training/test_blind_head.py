"""The head needs sums alone: the same as from rows, calibrated, and fit for sums with noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.arrays import Array
from veracausa.errors import InputError, RunError
from veracausa.training.blind.calibration import contrasts
from veracausa.training.blind.head import BlindHead, fit_head
from veracausa.training.blind.ridge import CentredSums, solve
from veracausa.training.evaluate import evaluate


@dataclass(frozen=True)
class Sums:
    rows: int
    slices: dict[str, slice]
    gram: Array
    noise: float | Array = 0.0


@dataclass(frozen=True)
class Toy:
    """Rows of three parties, their labels, and the sums of them."""

    parts: dict[str, Array]
    labels: Array
    label_columns: Array

    @property
    def sums(self) -> Sums:
        n = len(self.labels)
        blocks = [np.concatenate([self.parts["active"], np.ones((n, 1)), self.label_columns], axis=1)]
        blocks += [block for name, block in self.parts.items() if name != "active"]
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)]).tolist()
        whole = np.concatenate(blocks, axis=1)
        slices = {name: slice(*ends[at : at + 2]) for at, name in enumerate(self.parts)}
        return Sums(n, slices, whole.T @ whole)

    @property
    def own(self) -> slice:
        return slice(0, self.parts["active"].shape[1])

    @property
    def label(self) -> slice:
        start = self.parts["active"].shape[1] + 1
        return slice(start, start + self.label_columns.shape[1])

    def head(self, ridge: float | str = "gcv", sums: Sums | None = None, **more) -> BlindHead:
        classes = self.label_columns.shape[1]
        task = "classification" if self.labels.dtype == np.int64 else "regression"
        return fit_head(sums or self.sums, self.own, self.label, task, classes, ridge, **more)

    def scores(self, head: BlindHead) -> Array:
        return sum(head.part(name, block) for name, block in self.parts.items())

    def outputs(self, head: BlindHead) -> torch.Tensor:
        return head.outputs(self.scores(head))


def toy(n: int = 2000, classes: int = 3, seed: int = 0, apart: float = 0.7, shares: tuple[float, ...] = ()) -> Toy:
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(99).normal(size=(max(classes, 2), 9)) * apart
    if classes:
        labels = rng.choice(classes, n, p=shares or None)
        x = means[labels] + rng.normal(size=(n, 9)) + 0.3
        columns = np.eye(classes)[labels]
    else:
        x = rng.normal(size=(n, 9)) + 0.3
        labels = x @ means[0] + rng.normal(size=n)
        columns = labels[:, None]
    parts = {"active": x[:, :2], "first": x[:, 2:5], "second": np.concatenate([x[:, 5:], np.ones((n, 1))], axis=1)}
    return Toy(parts, labels, columns)


def stacked(data: Toy) -> Array:
    return np.concatenate(list(data.parts.values()), axis=1)


def row_wise(data: Toy, ridge: float) -> tuple[Array, float]:
    """Fitted values and generalised cross-validation of a ridge with rows in hand."""
    x, y, n = stacked(data), data.label_columns, len(data.labels)
    centred, target = x - x.mean(0), y - y.mean(0)
    hat = centred @ np.linalg.solve(centred.T @ centred + n * ridge * np.eye(x.shape[1]), centred.T)
    fitted = hat @ target + y.mean(0)
    error = ((y - fitted) ** 2).sum() / n
    return fitted, error / (1 - (np.trace(hat) + 1) / n) ** 2


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0, 2, 5]), st.floats(-6, 1))
def test_the_ridge_and_its_cross_validation_are_those_of_the_rows(seed: int, classes: int, exponent: float) -> None:
    data, ridge = toy(150, classes, seed), 10.0**exponent
    head = data.head(ridge)
    fitted, criterion = row_wise(data, ridge)
    basis = contrasts(classes) if classes else np.eye(1)
    np.testing.assert_allclose(data.scores(head) + head.bias, fitted @ basis, atol=1e-8)
    total = ((data.label_columns - data.label_columns.mean(0)) ** 2).sum()
    assert head.fit["gcv_r2"] == pytest.approx(1 - criterion * len(data.labels) / total, abs=1e-8)


def test_gcv_finds_the_least_of_the_row_wise_criterion() -> None:
    data = toy(120, 2, apart=0.2)
    chosen = data.head()
    least = min(row_wise(data, ridge)[1] for ridge in np.logspace(-6, 2, 200))
    assert row_wise(data, chosen.fit["ridge"])[1] <= least * (1 + 1e-4)


def test_gcv_of_sums_tells_the_error_of_new_rows() -> None:
    train, test = toy(400, 0, seed=1), toy(20_000, 0, seed=2)
    head = train.head()
    found = evaluate("regression", test.outputs(head), torch.from_numpy(test.labels))
    assert found["r2"] == pytest.approx(head.fit["gcv_r2"], abs=0.03)


def test_a_regression_comes_in_its_own_units() -> None:
    data = toy(1000, 0)
    mean, spread = 50.0, 7.0
    scaled = replace(data, label_columns=(data.label_columns - mean) / spread)
    outputs = scaled.outputs(scaled.head(1e-6, target=(mean, spread)))
    np.testing.assert_allclose(outputs.numpy(), data.outputs(data.head(1e-6)).numpy(), atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_outputs_are_calibrated_on_new_rows(classes: int) -> None:
    train, test = toy(4000, classes, seed=1, apart=0.45), toy(20_000, classes, seed=2, apart=0.45)
    chances = test.outputs(train.head()).double().softmax(1).numpy()
    assert calibration_error(chances, test.labels) < 0.05
    # Without calibration, the ridge's own outputs taken as logits are far off.
    head = train.head()
    raw = (test.scores(head) + head.bias) @ head.calibration.basis.T
    flat = np.exp(raw) / np.exp(raw).sum(1, keepdims=True)
    assert calibration_error(flat, test.labels) > 0.1


def calibration_error(chances: Array, labels: Array, bins: int = 15) -> float:
    sure, right = chances.max(1), chances.argmax(1) == labels
    group = np.searchsorted(np.quantile(sure, np.linspace(0, 1, bins + 1)[1:-1]), sure)
    return sum(abs(sure[group == at].mean() - right[group == at].mean()) * (group == at).mean() for at in range(bins))


def test_opened_validation_rows_refine_the_calibration() -> None:
    train, test = toy(3000, 2, seed=1), toy(6000, 2, seed=2)
    head = train.head()
    # A head that is too sure of itself.
    sure = replace(head, calibration=replace(head.calibration, slopes=4 * head.calibration.slopes))
    some = replace(test, parts={name: block[:1000] for name, block in test.parts.items()}, labels=test.labels[:1000])
    refined = sure.refined(some.scores(sure), some.labels)
    truth = torch.from_numpy(test.labels)
    assert (
        evaluate("classification", test.outputs(refined), truth)["loss"]
        < (evaluate("classification", test.outputs(sure), truth)["loss"])
    )
    few = sure.refined(some.scores(sure)[:30], some.labels[:30])
    assert few.calibration.factor == 1.0


def test_balanced_weights_find_the_rare_class() -> None:
    train, test = toy(4000, 2, seed=1, shares=(0.93, 0.07)), toy(8000, 2, seed=2, shares=(0.93, 0.07))
    truth = torch.from_numpy(test.labels)
    plain = evaluate("classification", test.outputs(train.head()), truth)
    balanced = evaluate("classification", test.outputs(train.head(class_weights="balanced")), truth)
    assert balanced["balanced_accuracy"] > plain["balanced_accuracy"]
    given = evaluate("classification", test.outputs(train.head(class_weights=(0.5 / 0.93, 0.5 / 0.07))), truth)
    assert given["balanced_accuracy"] == pytest.approx(balanced["balanced_accuracy"], abs=0.01)


def test_a_party_that_lacks_rows_has_zeros_there() -> None:
    data = toy(3000, 2)
    lacks = np.arange(3000) % 3 == 0
    second = data.parts["second"].copy()
    second[lacks] = 0
    partly = replace(data, parts={**data.parts, "second": second})
    head = partly.head()
    found = evaluate("classification", partly.outputs(head), torch.from_numpy(data.labels))
    alone = replace(data, parts={**data.parts, "second": np.zeros_like(second)})
    least = evaluate("classification", alone.outputs(alone.head()), torch.from_numpy(data.labels))
    most = evaluate("classification", data.outputs(data.head()), torch.from_numpy(data.labels))
    assert least["auc"] < found["auc"] < most["auc"]


def test_rows_that_the_active_party_leaves_out_do_not_count() -> None:
    data = toy(2000, 2)
    out = np.arange(2000) % 40 == 0
    whole = data.sums
    blocks = [np.concatenate([data.parts["active"], np.ones((2000, 1)), data.label_columns], axis=1)]
    blocks[0][out] = 0
    blocks += [data.parts["first"], data.parts["second"]]
    z = np.concatenate(blocks, axis=1)
    head = data.head(1e-3, replace(whole, gram=z.T @ z))
    kept = replace(
        data,
        parts={name: block[~out] for name, block in data.parts.items()},
        labels=data.labels[~out],
        label_columns=data.label_columns[~out],
    )
    # Not the same sums: other parties' products still hold the rows. Nearly the same head.
    expected = kept.head(1e-3)
    for name, weights in head.weights.items():
        np.testing.assert_allclose(weights, expected.weights[name], atol=0.02)


def noisy(sums: Sums, deviation: float, seed: int = 0) -> Sums:
    """Noise on all but the active party's own block, as the release adds it."""
    rng = np.random.default_rng(seed)
    drawn = np.triu(rng.normal(size=sums.gram.shape))
    drawn = deviation * (drawn + np.triu(drawn, 1).T)
    size = np.full(sums.gram.shape, deviation)
    at = sums.slices["active"]
    drawn[at, at] = 0
    size[at, at] = 0
    return replace(sums, gram=sums.gram + drawn, noise=size)


def test_a_strength_that_knows_the_noise_is_near_the_best_one() -> None:
    train, test = toy(4000, 3, seed=1), toy(8000, 3, seed=2)
    truth = torch.from_numpy(test.labels)
    short = []
    for seed in range(6):
        sums = noisy(train.sums, 200.0, seed)
        chosen = evaluate("classification", test.outputs(train.head(sums=sums)), truth)["accuracy"]
        every = [
            evaluate("classification", test.outputs(train.head(ridge, sums)), truth)["accuracy"]
            for ridge in (1e-3, 1e-2, 1e-1, 1.0, 10.0)
        ]
        short.append(max(every) - chosen)
    # The best of five strengths is picked on the test rows themselves.
    assert np.mean(short) < 0.01
    blind = replace(noisy(train.sums, 900.0), noise=0.0)
    unaware = evaluate("classification", test.outputs(train.head(sums=blind)), truth)["loss"]
    aware = evaluate("classification", test.outputs(train.head(sums=noisy(train.sums, 900.0))), truth)["loss"]
    assert aware < unaware


def test_the_noise_is_taken_off_what_the_outputs_explain() -> None:
    """By Stein's lemma: on average over noise, the corrected WᵀCW and Wᵀc are those of the exact sums."""
    data = toy(2000, 0)
    exact = data.sums
    columns = np.concatenate([np.arange(0, 2), np.arange(4, exact.gram.shape[0])])
    cut = (exact.rows, columns, 2, np.array([3]), 2)
    clean = CentredSums.of(exact.gram, 0.0, *cut)
    raw, corrected, true = [], [], []
    for seed in range(300):
        sums = noisy(exact, 60.0, seed)
        found = solve(CentredSums.of(sums.gram, sums.noise, *cut), 0.2)
        weights = found.weights
        true.append(float((weights.T @ clean.xx @ weights).item() - 2 * (weights.T @ clean.xy).item()))
        corrected.append(float((found.scatter - 2 * found.agreement).item()))
        seen = CentredSums.of(sums.gram, 0.0, *cut)
        raw.append(float((weights.T @ seen.xx @ weights).item() - 2 * (weights.T @ seen.xy).item()))
    gap = abs(np.mean(corrected) - np.mean(true))
    assert gap < 0.5 * abs(np.mean(raw) - np.mean(true))


def test_a_saved_head_is_the_same() -> None:
    data = toy(500, 3)
    head = data.head()
    again = BlindHead.of(head.state())
    assert torch.equal(data.outputs(again), data.outputs(head))
    assert again.largest == head.largest > 0
    assert head.scores_width == 2


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"task": "ranking"},
        {"weights": {"active": torch.zeros(3)}},
        {"bias": torch.zeros(9)},
        {"fit": None},
    ],
)
def test_another_tree_is_refused(change: dict[str, object]) -> None:
    state = toy(300, 3).head().state()
    with pytest.raises(InputError):
        BlindHead.of({**state, **change})


def test_what_does_not_fit_is_refused() -> None:
    data = toy(300, 3)
    with pytest.raises(InputError, match="label columns"):
        fit_head(data.sums, data.own, slice(90, 93), "classification", 3)
    with pytest.raises(InputError, match="features, the constant"):
        fit_head(data.sums, slice(0, 1), data.label, "classification", 3)
    empty = replace(data, label_columns=np.concatenate([data.label_columns[:, :2], np.zeros((300, 1))], axis=1))
    with pytest.raises(RunError, match="no rows"):
        empty.head()
    with pytest.raises(InputError, match="class_weights"):
        data.head(class_weights=(1.0, 2.0))
    with pytest.raises(RunError, match="not finite"):
        data.head(sums=replace(data.sums, gram=data.sums.gram * np.nan))
