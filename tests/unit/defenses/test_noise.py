"""Noise: where it comes from, and how often a row may have a new payload."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa import seeding
from veracausa.crypto.randomness import Keystream
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.noise import ExchangeBudget, FreshNoise, PerRowNoise, accounted_deviation
from veracausa.errors import InputError
from veracausa.testing.synthetic import linear, uniform_rows

KEY = bytes(range(32))
ROWS = torch.rand(64, 3, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "make", [lambda: PerRowNoise(KEY, ROWS), lambda: FreshNoise(KEY, ROWS.device)], ids=["by row", "fresh"]
)
def test_the_laws_are_those_they_are_named_after(make):
    draws = make()
    normal, laplace = draws.normal(64, 500), draws.laplace(64, 500)
    for drawn, deviation, fourth in ((normal, 1.0, 3.0), (laplace, 2**0.5, 6.0)):  # kurtosis: 3 and 6
        # 32,000 draws: four standard errors of each moment.
        assert drawn.isfinite().all()
        assert float(drawn.mean()) == pytest.approx(0, abs=4 * deviation / 32000**0.5)
        assert float(drawn.std()) == pytest.approx(deviation, rel=0.03)
        assert float((drawn / drawn.std()).pow(4).mean()) == pytest.approx(fourth, rel=0.15)
    assert abs(float((normal * laplace).mean())) < 0.05, "two calls give the same numbers"
    assert float((normal[1:] * normal[:-1]).mean()) == pytest.approx(0, abs=0.03), "two rows share their noise"


def test_a_row_has_its_noise_whatever_is_beside_it():
    whole = PerRowNoise(KEY, ROWS).normal(64, 5)
    assert torch.equal(PerRowNoise(KEY, ROWS[10:12]).normal(2, 5), whole[10:12])
    assert torch.equal(PerRowNoise(KEY, ROWS.contiguous(memory_format=torch.channels_last)).normal(64, 5), whole)
    assert torch.equal(PerRowNoise(KEY, ROWS.flip(0)).normal(64, 5), whole.flip(0))


def test_another_row_or_seed_has_other_noise():
    noise = PerRowNoise(KEY, ROWS).normal(64, 5)
    assert not (PerRowNoise(bytes(31) + b"8", ROWS).normal(64, 5) == noise).any()
    nudged = ROWS.clone()
    nudged[0, 0, 0, 0] += 1e-6
    swapped = ROWS.clone()
    swapped[0, 0, 0, 0], swapped[0, 0, 0, 1] = ROWS[0, 0, 0, 1], ROWS[0, 0, 0, 0]
    for other in (nudged, swapped):
        changed = PerRowNoise(KEY, other).normal(64, 5)
        assert not (changed[0] == noise[0]).any()
        assert torch.equal(changed[1:], noise[1:])
    zeros = torch.zeros(2, 5)
    assert torch.equal(PerRowNoise(KEY, zeros).normal(2, 3), PerRowNoise(KEY, -zeros).normal(2, 3)), (
        "a zero has two noises"
    )


def test_the_noise_of_a_key_stays_what_it_is():
    """Written down once: another value here would silently change every run with noise."""
    fresh, by_row = FreshNoise(bytes(32), torch.device("cpu")), PerRowNoise(bytes(32), torch.ones(1, 3))
    assert fresh.normal(4).tolist() == pytest.approx([0.69889, 0.57882, -0.53404, 0.90130], abs=1e-5)
    assert by_row.normal(1, 2).tolist()[0] == pytest.approx([-1.48154, 0.82069], abs=1e-5)


def test_the_ends_of_the_words_are_numbers(monkeypatch):
    ends = np.array([0, 1, 2**31, 2**32 - 2, 2**32 - 1, 0, 2**32 - 1, 7], dtype=np.uint32)
    monkeypatch.setattr(Keystream, "words", lambda self, count: np.resize(ends, count))
    draws = FreshNoise(KEY, torch.device("cpu"))
    assert draws.normal(8).isfinite().all()
    assert draws.laplace(8).isfinite().all()
    assert float(draws.laplace(8).abs().max()) == pytest.approx(32 * np.log(2), abs=0.1)


def laplace(key: bytes | None, rng_seed: int = 1) -> Defense:
    defense = defenses.get("laplace")(defenses.options("laplace")(name="laplace"))
    defense.key = key
    bottom = linear(6, 4)
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), seeding.generator(rng_seed))
    return defense


def sent(defense: Defense) -> torch.Tensor:
    x = uniform_rows(8, 4)
    return defense.forward(x, torch.arange(8), 0)[0]


def test_noise_takes_all_of_a_secret_seed_where_a_generator_takes_32_bits():
    """Seeds that PyTorch can not tell apart: who tries them all would have noise from its generators in an hour."""
    generators = [torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32)]
    assert torch.equal(*(torch.rand(9, generator=rng) for rng in generators))
    keys = [seeding.derive_key(seed, "lab", "noise") for seed in (5, 5 + 2**32, 5 + 2**255)]
    assert {len(key) for key in keys} == {32}
    payloads = [sent(laplace(key)) for key in keys]
    assert not any((one == other).any() for one, other in combinations(payloads, 2))
    # And no generator has a part in it.
    assert torch.equal(sent(laplace(keys[0], rng_seed=1)), sent(laplace(keys[0], rng_seed=2)))


def test_each_exchange_has_noise_of_its_own_and_a_repeated_one_the_same():
    first = laplace(KEY)
    once, again = sent(first), sent(first)
    assert not (once == again).any()
    resumed = laplace(KEY)
    resumed.load_state({**first.state(), "drawn": 1})
    assert torch.equal(sent(resumed), again)


def test_a_trained_part_does_not_hold_what_the_noise_in_training_followed_from():
    defense = laplace(KEY)
    kept = str(defense.state())
    for secret in (KEY, defense._fresh_key):
        assert secret.hex() not in kept


def test_noise_of_an_earlier_version_is_refused():
    with pytest.raises(InputError, match=r"'laplace': what is to be loaded was made by an earlier version.*train anew"):
        laplace(KEY).load_state({"seed": 5})


INPUTS, VALUES, EXCHANGES, NOISE, BUDGET_ROWS = 4, 6, 8, 0.5, 4000


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
    x = torch.randn(BUDGET_ROWS, INPUTS, generator=seeding.generator(2)).double()
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
