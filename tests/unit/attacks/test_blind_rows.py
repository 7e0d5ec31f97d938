"""Attacks on rows of a blind training: each works where protection is off, and reads less where it is on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView, Release
from veracausa.attacks.methods.blind.two_releases import difference, missing_row
from veracausa.errors import InputError

N, M, WIDTH, COLUMNS = 120, 600, 8, 8
SMALL: dict[str, Any] = {"epochs": 0, "fourier": 16}


class Training:
    """Rows of eight columns whose features are a rotation of them: whoever has the features has the row."""

    def __init__(self) -> None:
        rng = seeding.generator(3, "rows")
        self.rotation = torch.linalg.qr(torch.randn(COLUMNS, WIDTH, generator=rng, dtype=torch.float64)).Q
        self.rows, self.auxiliary = (torch.randn(count, COLUMNS, generator=rng) for count in (N, M))
        self.head = torch.randn(WIDTH, 2, generator=rng, dtype=torch.float64)
        self.labels, self.auxiliary_labels = (torch.arange(count) % 2 for count in (N, M))
        self.noise = seeding.generator(4, "noise")

    def features(self, rows: Tensor) -> Tensor:
        return rows.double() @ self.rotation

    def view(self, **more: Any) -> BlindView:
        return BlindView(
            grants=~Grant.NONE,
            seat="active",
            victim="bank",
            row_shape=(COLUMNS,),
            pixels=False,
            classes=2,
            numbers=2,
            rng=seeding.generator(5, "attack"),
            labels=self.labels,
            auxiliary=self.auxiliary,
            auxiliary_labels=self.auxiliary_labels,
            auxiliary_features=self.features(self.auxiliary),
            **more,
        )

    def uniform(self, shape: torch.Size, step: float) -> Tensor:
        return step * (torch.rand(shape, generator=self.noise, dtype=torch.float64) - 0.5)


@pytest.fixture(scope="module")
def training() -> Training:
    return Training()


def attack(name: str, **settings: Any) -> Any:
    return blind_attacks.get(name)(blind_attacks.options(name)(name=name, **{**SMALL, **settings}))


def share_read(reading: BlindReading, truth: Tensor) -> float:
    """1 − the error over that of the mean, which is 0 here."""
    assert reading.rows is not None
    return 1 - float((reading.rows - truth).square().mean() / truth.square().mean())


def test_scores_tell_as_many_directions_as_there_are_numbers(training: Training) -> None:
    features, known = training.features(training.rows), training.features(training.auxiliary)
    scores = training.view(scores=features @ training.head, auxiliary_scores=known @ training.head)
    everything = training.view(scores=features, auxiliary_scores=known)
    told = share_read(attack("score_decoder").read(scores), training.rows)
    assert told == pytest.approx(2 / COLUMNS, abs=0.08)
    assert share_read(attack("score_decoder").read(everything), training.rows) > 0.98


def test_a_score_that_says_nothing_is_not_read(training: Training) -> None:
    drawn = training.uniform(torch.Size((N + M, 2)), 1.0)
    view = training.view(scores=drawn[:N], auxiliary_scores=drawn[N:])
    assert share_read(attack("score_decoder").read(view), training.rows) < 0.02


@pytest.mark.parametrize("functionals", ["informed", "principal", "random"])
def test_heads_of_its_own_making_read_a_row_piece_by_piece(training: Training, functionals: str) -> None:
    def answering(most: int) -> dict[str, Any]:
        asked = iter(range(most))

        def ask(weights: Tensor) -> Tensor:
            if next(asked, None) is None:
                raise InputError("another head was answered for these rows")
            return training.features(training.rows) @ weights

        return {"ask": ask, "ask_auxiliary": lambda weights: training.features(training.auxiliary) @ weights}

    once = share_read(
        attack("chosen_head", functionals=functionals, heads=4).read(training.view(**answering(1))), training.rows
    )
    often = attack("chosen_head", functionals=functionals, heads=4)
    assert share_read(often.read(training.view(**answering(4))), training.rows) > 0.98
    assert often.notes()["heads_answered"] == 4
    assert once == pytest.approx(2 / COLUMNS, abs=0.08)  # the book held it to one


def test_a_second_head_tells_as_much_again(training: Training) -> None:
    other = torch.randn(WIDTH, 2, generator=seeding.generator(9), dtype=torch.float64)
    features, known = training.features(training.rows), training.features(training.auxiliary)
    view = training.view(
        scores=features @ training.head,
        auxiliary_scores=known @ training.head,
        second_scores=features @ other,
        auxiliary_second_scores=known @ other,
    )
    assert share_read(attack("two_heads").read(view), training.rows) == pytest.approx(4 / COLUMNS, abs=0.1)


def test_averaging_takes_fresh_noise_away_and_permanent_noise_not(training: Training) -> None:
    exact, known = (training.features(rows) @ training.head for rows in (training.rows, training.auxiliary))
    step = 8.0
    once = exact + training.uniform(exact.shape, step)
    learnt = known + training.uniform(known.shape, step)
    permanent = training.view(auxiliary_scores=learnt, repeat=lambda: once)
    fresh = training.view(auxiliary_scores=known, repeat=lambda: exact + training.uniform(exact.shape, step))
    single = training.view(auxiliary_scores=learnt, scores=once)
    with_noise = share_read(attack("score_decoder").read(single), training.rows)
    stays = attack("repeated_prediction", repeats=64)
    assert share_read(stays.read(permanent), training.rows) == pytest.approx(with_noise, abs=0.03)
    assert stays.notes()["answers_differ_by"] == pytest.approx(0.0, abs=1e-12)
    assert share_read(attack("repeated_prediction", repeats=64).read(fresh), training.rows) > 1.5 * with_noise


def released(training: Training, rows: Tensor, own: Tensor, noise: float = 0.0, seed: int = 0) -> Release:
    whole = torch.cat([own, training.features(rows)], 1).numpy()
    gram = whole.T @ whole
    if noise:
        drawn = np.triu(np.random.default_rng(seed).standard_normal(gram.shape)) * noise
        gram = gram + drawn + np.triu(drawn, 1).T
    return Release(gram, len(rows), slice(0, 1), slice(1, 3), slice(3, 3 + WIDTH), noise)


def own_columns(count: int) -> Tensor:
    hot = torch.eye(2, dtype=torch.float64)[torch.arange(count) % 2]
    return torch.cat([torch.ones(count, 1, dtype=torch.float64), hot], 1)


def test_the_difference_of_two_releases_is_the_row(training: Training) -> None:
    own = own_columns(N)
    exact = difference(
        released(training, training.rows, own), released(training, training.rows[1:], own[1:]), own[0].numpy()
    )
    assert np.allclose(exact, training.features(training.rows[:1])[0].numpy(), atol=1e-8)

    def pair(noise: float) -> Any:
        def releases(target: int) -> tuple[Release, Release]:
            rest = torch.arange(N) != target
            return (
                released(training, training.rows, own, noise, 2 * target),
                released(training, training.rows[rest], own[rest], noise, 2 * target + 1),
            )

        return releases

    read = [
        share_read(attack("two_releases").read(training.view(releases=pair(noise), own_moments=own)), training.rows)
        for noise in (0.0, 50.0)
    ]
    assert read[0] > 0.98
    assert read[1] < 0.05  # noise of differential privacy is far above one row


def released_anew(features: Tensor, own: Tensor) -> Release:
    """The sums of these rows alone, their features centred and scaled over them."""
    scaled = (features - features.mean(0)) / features.std(0, correction=0)
    whole = torch.cat([own, scaled], 1).numpy()
    return Release(whole.T @ whole, len(features), slice(0, 1), slice(1, 3), slice(3, 3 + features.shape[1]))


@pytest.mark.parametrize("skewed", [False, True])
def test_features_that_are_scaled_anew_hide_no_row(training: Training, skewed: bool) -> None:
    """Means and deviations without the row follow from the row, so that the second release still tells it."""
    features, own = training.features(training.rows), own_columns(N)
    features = torch.exp(features) if skewed else features
    one = released_anew(features, own)
    base = torch.from_numpy(np.asarray((features - features.mean(0)) / features.std(0, correction=0)))
    for at in (0, 7, N - 1):
        rest = torch.arange(N) != at
        other = released_anew(base[rest], own[rest])
        row, mine = base[at].numpy(), own[at].numpy()
        assert np.allclose(missing_row(one, other, mine), row, atol=1e-5)
        assert not np.allclose(difference(one, other, mine), row, atol=0.05)


def test_a_row_is_found_whether_features_were_scaled_again_or_not(training: Training) -> None:
    own = own_columns(N)
    one, other = released(training, training.rows, own), released(training, training.rows[1:], own[1:])
    row = training.features(training.rows[:1])[0].numpy()
    assert np.allclose(missing_row(one, other, own[0].numpy()), row, atol=1e-6)


@pytest.mark.parametrize(("size", "least", "most"), [(1, 0.98, 1.0), (4, 0.1, 0.45), (40, -0.1, 0.05)])
def test_the_sums_of_a_small_class_are_its_rows(training: Training, size: int, least: float, most: float) -> None:
    groups = torch.arange(N) // size
    hot = torch.nn.functional.one_hot(groups).double()
    whole = torch.cat([torch.ones(N, 1, dtype=torch.float64), hot, training.features(training.rows)], 1).numpy()
    end = 1 + hot.shape[1]
    release = Release(whole.T @ whole, N, slice(0, 1), slice(1, end), slice(end, whole.shape[1]))
    read = share_read(attack("small_class").read(training.view(release=release, small=groups)), training.rows)
    assert least <= read <= most


def test_columns_that_single_out_rows_open_them(training: Training) -> None:
    features = training.features(training.rows)
    targets = torch.arange(0, N, 3)

    def view(smallest: int, noise: float = 0.0) -> BlindView:
        rng = np.random.default_rng(1)

        def cross(columns: Tensor) -> Tensor:
            if int((columns != 0).sum(0).min()) < smallest:
                raise InputError("a column of too few rows")
            sums = columns.T @ features
            return sums + noise * torch.from_numpy(rng.standard_normal(tuple(sums.shape)))

        empty = Release(np.zeros((0, 0)), N, slice(0), slice(0), slice(0), noise)
        more: dict[str, Any] = {"cross_moments": cross, "positions": targets, "training_rows": N}
        return training.view(**more, smallest=smallest, release=empty).replaced(labels=training.labels[targets])

    truth = training.rows[targets]
    assert share_read(attack("chosen_columns").read(view(1)), truth) > 0.98
    checked = attack("chosen_columns")
    # A check of single columns is no protection: two wide ones differ by one row.
    assert share_read(checked.read(view(20)), truth) > 0.98
    assert checked.notes()["indicator_refused"] == 1
    assert share_read(attack("chosen_columns").read(view(1, 10.0)), truth) < 0.1
    assert share_read(attack("chosen_columns", amplitude=1000.0).read(view(1, 10.0)), truth) > 0.98


def test_a_rare_category_that_was_left_out_is_still_opened_by_the_others(training: Training) -> None:
    """Constant − A − B is the row that neither has: its fitted value is its own."""
    category = torch.arange(N) % 2
    category[7] = 2
    own = torch.cat([torch.ones(N, 1), torch.eye(3)[category][:, :2]], 1).double()
    view = training.view(
        release=released(training, training.rows, own),
        own_moments=own,
        own_auxiliary_moments=own_columns(M),
    )
    reader = attack("sum_regression")
    reading = reader.read(view)
    assert reader.notes()["largest_leverage"] == pytest.approx(1.0)
    assert reading.rows is not None
    errors = (reading.rows - training.rows).square().mean(1)
    assert errors.argsort()[:3].tolist().count(7) == 1 or float(errors[7]) < 0.5 * float(errors.mean())
