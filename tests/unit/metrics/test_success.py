"""Success rates and re-identification by hand, beside what a guess without the payload gets; ties count fairly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.data.files import data_folder
from veracausa.metrics import lpips as lpips_weights
from veracausa.metrics.images import squared_distances
from veracausa.metrics.lpips import load_lpips, lpips
from veracausa.metrics.success import (
    class_success,
    identify,
    mse_success,
    reidentify,
    success_rates,
)


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


def test_ranks_by_hand() -> None:
    candidates = torch.tensor([[0.0], [1.0], [2.0], [3.0], [10.0], [11.0]])
    guess = torch.tensor([[0.4], [0.4], [6.4]])
    found = identify(guess, candidates, own=torch.tensor([0, 1, 0]), top=(1, 2, 5))
    assert found.found[1].tolist() == [1, 0, 0]
    assert found.found[2].tolist() == [1, 1, 0]
    assert found.found[5].tolist() == [1, 1, 0]  # 6.4 has five others nearer than 0
    assert found.rate(1) == pytest.approx(1 / 3)
    assert found.chance(5) == pytest.approx(5 / 6)


def test_equal_candidates_share_the_hit() -> None:
    rows = torch.rand(1, 3, 5, 4, generator=rng()).repeat(10, 1, 1, 1)
    found = reidentify(rows[:3], rows)
    assert found.rate(1) == pytest.approx(0.1)
    assert found.rate(5) == pytest.approx(0.5)
    # A constant guess is no nearer to its own row than to another's.
    others = torch.rand(200, 1, 4, 4, generator=rng(1))
    assert reidentify(torch.full_like(others, 0.5), others).rate(1) == pytest.approx(1 / 200)


@given(st.integers(1, 30), st.integers(0, 1000))
def test_a_good_copy_is_found_and_noise_is_not(count: int, seed: int) -> None:
    rows = torch.rand(count, 2, 3, generator=rng(seed))
    assert reidentify(rows, rows).rate(1) == 1
    found = reidentify(torch.rand(count, 2, 3, generator=rng(seed + 1)), rows)
    assert 0 <= found.rate(1) <= found.rate(5) <= 1
    order = torch.randperm(count, generator=rng(seed))
    assert reidentify(rows, rows[order], own=order.argsort()).rate(1) == 1


def test_distances_equal_the_direct_ones_over_several_blocks() -> None:
    a, b = torch.randn(7, 9000, generator=rng()), torch.randn(5, 9000, generator=rng(1))
    direct = (a.unsqueeze(1).double() - b.double()).square().sum(2)
    assert torch.allclose(squared_distances(a, b), direct, rtol=1e-12)


@pytest.mark.skipif(
    not all((data_folder() / "lpips" / name).is_file() for name in lpips_weights.SHA256),
    reason="no LPIPS weights in $VERACAUSA_DATA/lpips",
)
def test_lpips_ranks_as_pair_by_pair() -> None:
    network = load_lpips("squeeze")
    rows = torch.rand(6, 3, 16, 8, generator=rng())
    guess = (rows + 0.3 * torch.randn(rows.shape, generator=rng(1))).clamp(0, 1)
    pairs = torch.stack([lpips(g.expand_as(rows), rows, network) for g in guess])
    direct = (pairs.argmin(1) == torch.arange(6)).float()
    assert reidentify(guess, rows, network=network).found[1].tolist() == direct.tolist()


def test_a_guess_needs_a_row_of_its_own() -> None:
    with pytest.raises(ValueError, match="no own row"):
        reidentify(torch.zeros(3, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="position of its own row"):
        reidentify(torch.zeros(1, 2), torch.zeros(2, 2), own=torch.tensor([2]))
