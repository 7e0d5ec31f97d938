"""The four success rates, by hand, beside what a guess without the payload gets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.metrics.success import class_success, mse_success, success_rates


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_threshold_counts_samples_and_is_met_at_equality() -> None:
    truth = torch.zeros(3, 1, 2, 2)
    guess = torch.tensor([0.0, 0.25, 0.5]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    assert mse_success(guess, truth, 0.0625).tolist() == [True, True, False]


def test_a_grey_picture_passes_the_usual_threshold() -> None:
    dull = 0.5 + 0.2 * torch.randn(50, 3, 12, 12, generator=rng()).clamp(-1, 1)
    rates = success_rates(torch.full_like(dull, 0.5), dull, candidates=dull)
    assert rates["mse_0.1"].attack == rates["mse_0.1"].blind == 1
    assert rates["mse_0.025"].blind == rates["mse_0.025"].attack
    assert rates["identification"].attack == pytest.approx(rates["identification"].blind, abs=0.05)
    assert rates["ssim_0.5"].attack == 0
    assert "class" not in rates


def test_a_perfect_copy_succeeds_by_every_definition() -> None:
    truth = torch.rand(40, 1, 12, 12, generator=rng())
    labels = (truth.mean((1, 2, 3)) > 0.5).long()

    def classify(rows: torch.Tensor) -> torch.Tensor:
        bright = rows.mean((1, 2, 3)) - 0.5
        return torch.stack([-bright, bright], 1)

    rates = success_rates(truth, truth, labels=labels, classify=classify, candidates=truth)
    assert all(rate.attack == 1 for rate in rates.values())
    assert set(rates) == {"mse_0.1", "mse_0.025", "class", "identification", "ssim_0.5"}
    share = labels.float().mean().item()
    assert rates["class"].blind == pytest.approx(max(share, 1 - share))
    assert class_success(1 - truth, labels, lambda rows: classify(rows).argmax(1)).float().mean() == 0


def test_table_rows_have_no_structure() -> None:
    rows = torch.rand(10, 4, generator=rng())
    assert set(success_rates(rows, rows)) == {"mse_0.1", "mse_0.025"}


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_wider_threshold_is_met_no_less_often(first: float, second: float) -> None:
    truth, guess = torch.rand(20, 1, 3, 3, generator=rng()), torch.rand(20, 1, 3, 3, generator=rng(1))
    low, high = sorted((first, second))
    assert (mse_success(guess, truth, high) >= mse_success(guess, truth, low)).all()
