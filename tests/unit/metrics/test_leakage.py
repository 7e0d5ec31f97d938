"""Leakage and the guesses it is measured against."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.metrics.leakage import (
    ColumnErrors,
    blind_guesses,
    blind_mse,
    class_mean_image,
    column_leakages,
    fit_ridge,
    grey,
    leakage,
    mean_colour,
    mean_image,
    ridge_guess,
    table_leakage,
)


@given(st.floats(0, 10), st.floats(0, 10))
def test_leakage_is_a_share(attack: float, blind: float) -> None:
    assert 0 <= leakage(attack, blind) <= 1
    assert leakage(blind, blind) == 0


def test_a_perfect_copy_leaks_all_and_a_blind_guess_nothing() -> None:
    assert leakage(0.0, 0.05) == 1
    assert leakage(0.06, 0.05) == 0
    assert leakage(0.0, 0.0) == 0  # there was nothing to learn


def test_the_trivial_baselines() -> None:
    rng = torch.Generator().manual_seed(0)
    pictures = torch.rand(4000, 3, 2, 2, generator=rng)
    # Uniform pixels: grey and the mean both err by their variance, 1/12.
    assert (grey(pictures) - pictures).square().mean().item() == pytest.approx(1 / 12, rel=0.02)
    assert mean_colour(pictures, 5).shape == mean_image(pictures, 5).shape == (5, 3, 2, 2)
    assert torch.allclose(mean_colour(pictures, 1)[0, :, 0, 0], pictures.mean((0, 2, 3)))
    labels = torch.tensor([0, 1] * 2000)
    tinted = pictures * 0.1 + labels.view(-1, 1, 1, 1) * 0.5
    guess = class_mean_image(tinted, labels, torch.tensor([1, 0, 7]))
    assert guess[:, 0, 0, 0].tolist() == pytest.approx([0.55, 0.05, 0.3], abs=0.01)


def test_the_blind_guess_is_the_best_there_is() -> None:
    rng = torch.Generator().manual_seed(1)
    own = torch.rand(600, 1, 2, 2, generator=rng)
    rows = own.flip(3) * 0.8 + 0.1 + 0.01 * torch.randn(600, 1, 2, 2, generator=rng)
    labels = torch.randint(3, (600,), generator=rng)
    guesses = blind_guesses(
        rows[:500],
        100,
        auxiliary_labels=labels[:500],
        labels=labels[500:],
        own_auxiliary=own[:500],
        own=own[500:],
    )
    error, name = blind_mse(guesses, rows[500:])
    assert set(guesses) == {"mean image", "class mean", "own columns"}
    assert name == "own columns"
    assert error < 2e-4
    without = blind_mse(blind_guesses(rows[:500], 100), rows[500:])
    assert without[1] == "mean image"
    assert without[0] > 0.03


def test_a_regression_has_a_target_in_place_of_classes() -> None:
    target = torch.linspace(-1, 1, 200)
    rows = torch.stack([2 * target, -target], 1)
    guesses = blind_guesses(rows, 200, auxiliary_labels=target, labels=target, pixels=False)
    assert blind_mse(guesses, rows)[1] == "target"


def test_ridge_stands_constant_and_few_columns() -> None:
    assert torch.isfinite(ridge_guess(torch.ones(3, 4), torch.rand(3, 2), torch.ones(5, 4))).all()


def test_a_table_leaks_by_its_columns() -> None:
    rng = torch.Generator().manual_seed(2)
    number = torch.randn(400, 1, generator=rng)
    category = torch.nn.functional.one_hot(torch.randint(4, (400,), generator=rng), 4).float()
    constant = torch.ones(400, 1)
    truth = torch.cat([number, category, constant], 1)
    blind = {"mean image": truth.mean(0).expand_as(truth)}
    groups = (0, 1, 1, 1, 1, 2)
    perfect = column_leakages(truth, truth, blind, groups)
    assert perfect == [1.0, 1.0, None]
    assert table_leakage(truth, truth, blind, groups) == 1
    assert table_leakage(blind["mean image"], truth, blind, groups) == 0
    half = truth.clone()
    half[:, 0] = 0
    # Errors are added up: a blind guess has 1 of the number and 3/4 of the category.
    assert table_leakage(half, truth, blind, groups) == pytest.approx(0.75 / 1.75, abs=0.01)
    assert column_leakages(half, truth, blind, groups) == [pytest.approx(0, abs=1e-3), 1.0, None]
    assert table_leakage(truth, truth, blind) == 1
    with pytest.raises(ValueError, match="group numbers"):
        table_leakage(truth, truth, blind, (0, 1))


def test_a_guess_worse_than_blindly_leaks_nothing_though_one_column_is_read() -> None:
    rng = torch.Generator().manual_seed(4)
    truth = torch.randn(300, 5, generator=rng)
    blind = {"mean image": torch.zeros_like(truth)}
    guess = truth + 1.2 * torch.randn(300, 5, generator=rng)
    guess[:, 0] = truth[:, 0] * 0.8
    assert (guess - truth).square().mean() > truth.square().mean()
    assert table_leakage(guess, truth, blind) == 0
    assert column_leakages(guess, truth, blind)[0] == pytest.approx(0.96, abs=1e-3)


def test_a_category_never_seen_in_training_counts_for_nobody() -> None:
    truth = torch.eye(3).repeat(4, 1)
    truth[0] = 0
    blind = {"mean image": torch.tensor([1.0, 0, 0]).expand_as(truth)}
    errors = ColumnErrors.of(truth, truth, blind, (0, 0, 0))
    assert errors.attack.isnan().sum() == 1
    assert errors.in_all() == 1
    assert errors.by_column() == [1.0]


def test_ridge_is_the_same_whichever_side_is_solved() -> None:
    rng = torch.Generator().manual_seed(3)
    wide, rows = torch.randn(20, 19, generator=rng), torch.randn(20, 2, 3, generator=rng)
    # One column more than rows takes the other formula; a column of zeros changes no prediction.
    wider = torch.cat([wide, torch.zeros(20, 2)], 1)
    assert torch.allclose(fit_ridge(wide, rows, 0.1)(wide), fit_ridge(wider, rows, 0.1)(wider), atol=1e-5)
