"""Told labels: drawn once from a key, with the chances that the account says, and a loss that undoes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.errors import InputError
from veracausa.training.blind.labels import (
    best_guess,
    forward_corrected_loss,
    keep_chance,
    posterior,
    randomised_labels,
    response_matrix,
    target_bins,
    two_stage_labels,
)

KEY = bytes(range(32))
EPSILONS = st.floats(0.05, 12)


def ratio(matrix: np.ndarray) -> float:
    """The largest ratio of two chances of the same told label."""
    columns = matrix[:, matrix.max(0) > 0]
    return float((columns.max(0) / columns.min(0)).max())


@given(st.integers(2, 30), EPSILONS)
def test_the_response_has_exactly_this_epsilon(classes: int, epsilon: float) -> None:
    matrix = response_matrix(classes, epsilon)
    np.testing.assert_allclose(matrix.sum(1), 1)
    assert math.log(ratio(matrix)) == pytest.approx(epsilon)


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=12), EPSILONS)
def test_with_a_prior_it_has_at_most_this_epsilon(prior: list[float], epsilon: float) -> None:
    matrix = response_matrix(len(prior), epsilon, prior)
    np.testing.assert_allclose(matrix.sum(1), 1)
    assert math.log(ratio(matrix)) <= epsilon + 1e-9
    shares = np.array(prior) / sum(prior)
    # It tells the truth at least as often as the plain response does: that is what it is for.
    assert shares @ np.diag(matrix) >= keep_chance(len(prior), epsilon) - 1e-9


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_a_told_label_depends_on_key_id_and_label_alone(labels: list[int], random) -> None:
    ids = [f"row {number}" for number in range(len(labels))]
    told = dict(zip(ids, randomised_labels(labels, ids, 4, 1.0, KEY).told.tolist(), strict=True))
    order = list(range(len(labels)))
    random.shuffle(order)
    again = randomised_labels([labels[at] for at in order], [ids[at] for at in order], 4, 1.0, KEY).told
    assert [told[ids[at]] for at in order] == again.tolist()


def test_the_chances_are_those_of_the_matrix() -> None:
    n, classes = 40_000, 4
    labels = np.arange(n) % classes
    told, transition, account = randomised_labels(labels, range(n), classes, 1.5, KEY)
    for true in range(classes):
        seen = np.bincount(told[labels == true], minlength=classes) / (n / classes)
        # Five standard deviations of a share of 10,000 rows.
        np.testing.assert_allclose(seen, transition[true], atol=0.025)
    assert account.kept == pytest.approx(keep_chance(classes, 1.5))
    assert account.text == "each label is told once with epsilon = 1.5: true with probability 0.60"


def test_another_key_label_or_epsilon_is_another_draw() -> None:
    labels = np.zeros(2000, np.int64)
    base = randomised_labels(labels, range(2000), 2, 1.0, KEY).told
    assert (randomised_labels(labels, range(2000), 2, 1.0, KEY[::-1]).told != base).any()
    # With one coin for both labels, told labels would move with the true ones: in exactly all rows.
    moved = randomised_labels(labels + 1, range(2000), 2, 1.0, KEY).told
    assert 0.3 < (moved != base).mean() < 0.8
    # With one coin for both strengths, who is told wrongly at the greater one would be so at the smaller one too.
    weak = randomised_labels(labels, range(2000), 2, 0.5, KEY).told
    assert ((weak == 0) & (base == 1)).any()


def test_numbers_and_text_are_different_ids() -> None:
    labels = np.zeros(500, np.int64)
    numbers = randomised_labels(labels, range(500), 2, 0.5, KEY).told
    text = randomised_labels(labels, [str(at) for at in range(500)], 2, 0.5, KEY).told
    assert (numbers != text).any()


def test_two_stages_tell_each_label_once() -> None:
    n = 4000
    labels = np.random.default_rng(0).integers(0, 10, n)
    near = np.eye(10)[labels] * 0.5 + np.eye(10)[(labels + 1) % 10] * 0.5
    seen = []

    def learn(first, told):
        seen.append((first, told))
        return near[~first]

    told, transition, account = two_stage_labels(labels, range(n), 10, 1.0, KEY, learn)
    first, early = seen[0]
    assert 0.45 < first.mean() < 0.55
    assert (told[first] == early.told).all()
    assert transition.shape == (n, 10, 10)
    assert max(ratio(matrix) for matrix in transition[:50]) <= math.e * (1 + 1e-9)
    # Two likely classes a row: the second half is told truly with exp(1) / (exp(1) + 1), not exp(1) / (exp(1) + 9).
    assert (told == labels)[~first].mean() == pytest.approx(0.73, abs=0.04)
    assert (told == labels)[first].mean() == pytest.approx(0.23, abs=0.04)
    assert account.kept == pytest.approx((told == labels).mean(), abs=0.03)


@pytest.mark.parametrize("by_row", [False, True])
def test_the_corrected_loss_is_least_at_the_true_chances(by_row: bool) -> None:
    rng, classes, n = np.random.default_rng(0), 3, 60_000
    shares = np.array([0.6, 0.3, 0.1])
    labels = rng.choice(classes, n, p=shares)
    told, transition, _ = randomised_labels(labels, range(n), classes, 1.0, KEY)
    matrix = torch.from_numpy(np.broadcast_to(transition, (n, 3, 3)).copy() if by_row else transition)
    logits = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=50)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = forward_corrected_loss(logits.expand(n, 3), torch.from_numpy(told), matrix)
        value.backward()
        return value

    optimizer.step(loss)
    np.testing.assert_allclose(logits.detach().softmax(0).numpy(), shares, atol=0.03)
    uncorrected = np.bincount(told) / n
    assert abs(uncorrected - shares).max() > 0.1


def test_true_labels_need_no_correction() -> None:
    logits, labels = torch.randn(20, 4), torch.arange(20) % 4
    plain = torch.nn.functional.cross_entropy(logits, labels)
    assert forward_corrected_loss(logits, labels, None) == plain
    torch.testing.assert_close(forward_corrected_loss(logits, labels, torch.eye(4)), plain)


def test_nobody_guesses_more_than_the_bound() -> None:
    n, classes = 30_000, 3
    prior = np.array([0.5, 0.3, 0.2])
    labels = np.random.default_rng(0).choice(classes, n, p=prior)
    told, transition, _ = randomised_labels(labels, range(n), classes, 1.0, KEY)
    after = posterior(transition, prior)
    np.testing.assert_allclose(after.sum(1), 1)
    guessed = (after.argmax(1)[told] == labels).mean()
    bound = best_guess(transition, prior)
    assert guessed == pytest.approx(bound, abs=0.015)
    assert bound < best_guess(response_matrix(classes, 3.0), prior)
    assert best_guess(response_matrix(classes, 0.01), prior) == pytest.approx(0.5, abs=0.01)


def test_bins_hold_about_as_many_rows_each() -> None:
    target = np.random.default_rng(0).normal(size=20_000)
    bins = target_bins(target, 8, 4.0, KEY)
    assert bins.classes == 8
    assert bins.epsilon == pytest.approx(0.2)
    assert not bins.range_public
    counts = np.bincount(bins.of(target), minlength=8)
    assert counts.min() > 0.5 * 20_000 / 8
    assert (np.diff(bins.edges) > 0).all()


def test_edges_repeat_and_depend_on_the_key() -> None:
    target = np.random.default_rng(0).exponential(size=3000)
    edges = target_bins(target, 5, 1.0, KEY, (0.0, 10.0)).edges
    assert (target_bins(target, 5, 1.0, KEY, (0.0, 10.0)).edges == edges).all()
    assert (target_bins(target, 5, 1.0, KEY[::-1], (0.0, 10.0)).edges != edges).any()


def test_equal_and_exact_edges_cost_nothing() -> None:
    target = np.linspace(0, 8, 801)
    np.testing.assert_allclose(target_bins(target, 4, 1.0, KEY, rule="equal").edges, [2, 4, 6])
    exact = target_bins(target, 4, None, KEY)
    np.testing.assert_allclose(exact.edges, [2, 4, 6])
    assert exact.epsilon == 0


@pytest.mark.parametrize(
    ("labels", "ids", "epsilon", "key", "said"),
    [
        ([0, 5], ["a", "b"], 1.0, KEY, "0 to 1"),
        ([0], ["a", "b"], 1.0, KEY, "2 ids"),
        ([0, 1], ["a", "a"], 1.0, KEY, "same id"),
        ([0, 1], ["a", "b"], 0.0, KEY, "label_epsilon"),
        ([0, 1], ["a", "b"], math.inf, KEY, "label_epsilon"),
        ([0, 1], ["a", "b"], 1.0, b"short", "key"),
    ],
)
def test_what_would_tell_too_much_or_nothing_is_refused(labels, ids, epsilon, key, said) -> None:
    with pytest.raises(InputError, match=said):
        randomised_labels(labels, ids, 2, epsilon, key)


def test_targets_that_cannot_be_binned_are_refused() -> None:
    with pytest.raises(InputError, match="missing or infinite"):
        target_bins(np.array([1.0, np.nan]), 4, 1.0, KEY)
    with pytest.raises(InputError, match="the same"):
        target_bins(np.ones(50), 4, 1.0, KEY)
