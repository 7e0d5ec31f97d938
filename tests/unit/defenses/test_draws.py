"""Noise that belongs to a row, and noise that is new each time."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from veracausa import seeding
from veracausa.crypto.randomness import Keystream
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.noise_sources import FreshNoise, PerRowNoise
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
