"""An attack is better than a blind guess only where that is no chance of the rows it was tried on."""

from __future__ import annotations

import math

import pytest
import torch

from veracausa.metrics.advantage import Advantage, lower_bound


def errors(count: int, advantage: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    blind = 1 + 0.2 * torch.rand(count, generator=rng)
    return blind * (1 - advantage + 0.5 * torch.randn(count, generator=rng)), blind


def bound(advantage: Advantage, chances: int = 1) -> float:
    return lower_bound(advantage.share, advantage.error, advantage.rows, chances)


def test_the_share_is_leakage_before_it_is_clipped() -> None:
    worse = Advantage.of(torch.tensor([1.5, 1.5]), torch.tensor([1.0, 1.0]))
    assert worse.share == pytest.approx(-0.5)
    copy = Advantage.of(torch.zeros(9), torch.rand(9))
    assert (copy.share, copy.error) == (1, 0)
    assert bound(copy) == 1


def test_a_blind_guess_with_noise_does_not_pass_and_a_real_advantage_does() -> None:
    passed = [bound(Advantage.of(*errors(400, 0.0, seed))) > 0 for seed in range(200)]
    assert sum(passed) <= 8  # at 99 %: about 2 of 200
    assert all(bound(Advantage.of(*errors(400, 0.3, seed))) > 0 for seed in range(20))


def test_the_standard_error_is_that_of_repeated_draws() -> None:
    found = [Advantage.of(*errors(400, 0.3, seed)) for seed in range(300)]
    shares = torch.tensor([one.share for one in found])
    assert float(shares.std()) == pytest.approx(sum(one.error or 0 for one in found) / len(found), rel=0.15)


def test_few_rows_and_many_chances_are_held_to_more() -> None:
    some = Advantage.of(*errors(50, 0.3))
    assert bound(some, 8) < bound(some)
    assert bound(Advantage.of(torch.zeros(1), torch.ones(1))) == -math.inf
    few, many = (lower_bound(0.3, 0.1, rows) for rows in (3, 3000))
    assert few < 0 < many
    assert Advantage.of(torch.zeros(4), torch.zeros(4)).share == 0
