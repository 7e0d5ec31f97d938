"""Re-identification and payload linkability: hand computations, ties, and rows that point at nobody."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.data.files import data_folder
from veracausa.metrics import lpips as lpips_weights
from veracausa.metrics.identification import identify, payload_linkability, reidentify, squared_distances
from veracausa.metrics.lpips import load_lpips, lpips


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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


def test_payloads_of_one_person_are_linked_and_unrelated_ones_are_not() -> None:
    people = torch.randn(100, 8, generator=rng())
    first, second = (people + 0.1 * torch.randn(100, 8, generator=rng(seed)) for seed in (1, 2))
    assert payload_linkability(first, second).rate(1) > 0.95
    assert payload_linkability(first, torch.randn(100, 8, generator=rng(3))).rate(1) < 0.1
    # A decoder undoes what keeps two payloads apart.
    scrambled = torch.cat([second, 100 * torch.randn(100, 8, generator=rng(4))], 1)
    plain = torch.cat([first, 100 * torch.randn(100, 8, generator=rng(5))], 1)
    assert payload_linkability(plain, scrambled).rate(1) < 0.1
    assert payload_linkability(plain, scrambled, lambda payload: payload[:, :8]).rate(1) > 0.95


def test_a_guess_needs_a_row_of_its_own() -> None:
    with pytest.raises(ValueError, match="no own row"):
        reidentify(torch.zeros(3, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="position of its own row"):
        reidentify(torch.zeros(1, 2), torch.zeros(2, 2), own=torch.tensor([2]))
