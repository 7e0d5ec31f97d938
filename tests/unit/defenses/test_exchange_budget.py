"""The account of noise, against attackers who keep every payload of a row, on a linear system whose bottom moves.

Payloads are y_t = A_t x + ε_t. The best that anybody can make of them is generalised least squares; averaging and
differencing are two ways of throwing part of them away.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa import seeding
from veracausa.defenses.noise import ExchangeBudget, accounted_deviation

INPUTS, VALUES, EXCHANGES, NOISE, ROWS = 4, 6, 8, 0.5, 4000


def bottoms(movement: float) -> torch.Tensor:
    """(T, values, inputs): one matrix and its way through the training."""
    rng = seeding.generator(0, "bottoms")
    first = torch.randn(VALUES, INPUTS, generator=rng)
    steps = movement * torch.randn(EXCHANGES - 1, VALUES, INPUTS, generator=rng).cumsum(0)
    return torch.cat([first[None], first + steps]).double()


def payloads(a: torch.Tensor, x: torch.Tensor, mode: str) -> torch.Tensor:
    """(T, rows, values)."""
    rng = seeding.generator(1, mode)
    clean = torch.einsum("tvi,ni->tnv", a, x)
    if mode == "fixed":
        return clean + NOISE * torch.randn(1, *clean.shape[1:], generator=rng).double()
    deviation = accounted_deviation(NOISE, EXCHANGES) if mode == "accounted" else NOISE
    return clean + deviation * torch.randn(clean.shape, generator=rng).double()


def error(a: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> float:
    """The mean squared error of least squares from (n, m) payloads through an (m, i) matrix."""
    return float((y @ torch.linalg.pinv(a).T - x).square().mean())


def attacks(mode: str, movement: float) -> dict[str, float]:
    x = torch.randn(ROWS, INPUTS, generator=seeding.generator(2)).double()
    a = bottoms(movement)
    y = payloads(a, x, mode)
    return {
        "one": error(a[0], y[0], x),
        "averaging": error(a.mean(0), y.mean(0), x),
        "differencing": error(a.diff(dim=0).flatten(0, 1), y.diff(dim=0).permute(1, 0, 2).flatten(1), x),
        # Independent noise of one size: ordinary least squares over everything is the best unbiased estimate.
        "everything": error(a.flatten(0, 1), y.permute(1, 0, 2).flatten(1), x),
    }


def one_observation(a: torch.Tensor) -> float:
    """What the best estimate from one payload at NOISE would miss, of a bottom with the mean information of all."""
    information = torch.einsum("tvi,tvj->ij", a, a) / len(a) / NOISE**2
    return float(torch.linalg.inv(information).diagonal().mean())


@pytest.mark.parametrize("movement", [0.0, 0.05, 0.5])
def test_accounted_noise_gives_all_exchanges_together_what_one_would(movement):
    found, bound = attacks("accounted", movement), one_observation(bottoms(movement))
    assert found["everything"] == pytest.approx(bound, rel=0.06)  # 4,000 rows of four values: 1 % is a deviation
    assert found["averaging"] > 0.95 * bound
    assert found["one"] > 3 * bound
    if movement:
        assert found["differencing"] > bound


@pytest.mark.parametrize("movement", [0.05, 0.5])
def test_the_other_modes_lose_to_the_attack_made_for_them(movement):
    bound = one_observation(bottoms(movement))
    fresh, fixed = attacks("fresh", movement), attacks("fixed", movement)
    assert fresh["everything"] < 2 / EXCHANGES * bound
    assert fixed["averaging"] > 0.5 * bound
    assert fixed["differencing"] < 1e-12, "the noise does not cancel: this is the attack that made accounting needed"
    assert fresh["differencing"] > 1e-4


@given(each=st.integers(1, 9), planned=st.integers(1, 9))
def test_new_payloads_are_spread_evenly_and_the_first_is_new(each, planned):
    budget = ExchangeBudget(each, planned)
    new = [bool(budget.spend(torch.tensor([0]))) for _ in range(20)]
    times = max(each, planned)
    assert sum(new) == sum(new[:times]) == each
    assert new[0]
    gaps = torch.tensor([i for i, one in enumerate(new) if one] + [times]).diff()
    assert gaps.max() - gaps.min() <= 1


@given(ids=st.lists(st.integers(0, 5), max_size=40), each=st.integers(1, 4))
def test_nobody_has_more_payloads_than_planned(ids, each):
    budget, crossed = ExchangeBudget(each), []
    for start in range(0, len(ids), 7):
        batch = torch.tensor(ids[start : start + 7])
        crossed += batch[budget.spend(batch)].tolist()
    assert all(crossed.count(row) == min(each, ids.count(row)) for row in range(6))
    if ids:
        known = range(max(ids) + 1)
        assert budget.spent() == pytest.approx(sum(ids.count(row) >= each for row in known) / len(known))
