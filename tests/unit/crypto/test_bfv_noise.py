"""Replies open exactly whatever is computed, the flood covers what it has to, and is what it is said to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

seal = pytest.importorskip("seal")

from bfv_holder import CuriousHolder, centred  # noqa: E402
from veracausa.crypto import ring  # noqa: E402
from veracausa.crypto.backends.bfv import parameters  # noqa: E402
from veracausa.crypto.backends.bfv.ciphertexts import decode, encode, factor, plaintext, scheme  # noqa: E402
from veracausa.crypto.backends.bfv.keys import PublicKey, flooded  # noqa: E402
from veracausa.crypto.backends.bfv.noise import _flood, fresh_noise, ternary  # noqa: E402
from veracausa.crypto.backends.bfv.parameters import (  # noqa: E402
    DEGREE,
    FLOOD_BITS,
    FLOODED,
    MOST_TERMS,
    NOISE_BITS,
    PRIMES,
    SENT,
    UNUSED_PRIME,
    context,
)
from veracausa.crypto.draws import SecureDraws  # noqa: E402
from veracausa.crypto.ring import P, Ring  # noqa: E402

DRAWS = SecureDraws()


def is_prime(n: int) -> bool:
    return all(pow(base, n - 1, n) == 1 for base in (2, 3, 5, 7, 11, 13))


def test_the_parameters_are_what_seal_calls_128_bits() -> None:
    assert context().parameters_set()
    bits = math.log2(math.prod(PRIMES) * UNUSED_PRIME)
    assert bits <= seal.CoeffModulus.MaxBitCount(DEGREE, seal.sec_level_type.tc128) == 218
    for prime in (*PRIMES, UNUSED_PRIME, P):
        assert prime % (2 * DEGREE) == 1
        assert is_prime(prime)


def test_every_reply_opens_exactly_and_the_flood_is_wide_enough() -> None:
    """Worst cases, not averages: no factor and no noise can make a reply open wrongly."""
    assert parameters.room() < 0.3
    assert parameters.largest_noise(MOST_TERMS) / PRIMES[FLOODED - 1] < 1
    assert parameters.statistical_bits(parameters.typical_noise(MOST_TERMS)) > 68
    assert parameters.statistical_bits(parameters.typical_noise(32)) > 71
    assert parameters.statistical_bits(parameters.largest_noise(MOST_TERMS)) > 53


@pytest.fixture(scope="module")
def holder() -> CuriousHolder:
    return CuriousHolder()


def worst(kind: str) -> Ring:
    """Slots whose polynomial has large coefficients."""
    if kind == "uniform":
        return DRAWS.uniform(DEGREE)
    if kind == "alternating":
        return np.where(np.arange(DEGREE) % 2 == 0, P - 1, 1)
    return decode(plaintext(np.full(DEGREE, P // 2, dtype=np.uint64)))


@pytest.mark.parametrize("terms", [1, 32])
@pytest.mark.parametrize("kind", ["uniform", "alternating", "largest coefficients"])
def test_noise_as_measured(holder: CuriousHolder, kind: str, terms: int) -> None:
    key = PublicKey(holder.public_key())
    x, v, mask = DRAWS.uniform(DEGREE), worst(kind), DRAWS.uniform(DEGREE)
    own, times = holder.encrypt(x), factor(encode(v))
    hidden = key.hidden(0, factor(plaintext(ternary())), [(holder.encrypt(x), times)] * (terms - 1) + [(own, times)])
    unflooded = scheme().evaluator.transform_from_ntt(hidden)
    scheme().evaluator.mod_switch_to_next_inplace(unflooded)
    before = holder.noise(unflooded)
    sent = flooded(hidden, mask)
    assert np.array_equal(
        decode(holder.decryptor.decrypt(sent)), ring.add(ring.scale(ring.multiply(x, v), terms), mask)
    )
    assert np.abs(before).max() < parameters.largest_noise(terms)
    if kind == "uniform" and terms == 1:
        assert np.sqrt(np.mean(before**2)) == pytest.approx(parameters.typical_noise(terms), rel=0.05)
    after = holder.noise(sent)
    assert 0.99 * 2 ** (FLOOD_BITS - 1) < np.abs(after).max() < 2 ** (FLOOD_BITS - 1) + 400
    assert holder.decryptor.invariant_noise_budget(sent) >= 1


def test_the_flood_is_uniform_over_its_range() -> None:
    _, flood = fresh_noise()
    modulus = math.prod(PRIMES[:FLOODED])
    value = np.zeros(DEGREE, dtype=object)
    for prime, limb in zip(PRIMES[:FLOODED], flood[0].astype(object), strict=True):
        value += limb * (pow(modulus // prime, -1, prime) * (modulus // prime))
    value = centred(value % modulus, modulus)
    edge = PRIMES[FLOODED - 1] << (FLOOD_BITS - 1)
    assert not flood[1].any()
    assert value.min() >= -edge
    assert value.max() < edge
    sorted_places = np.sort(((value + edge) / (2 * edge)).astype(float))
    distance = np.abs(sorted_places - np.arange(DEGREE) / DEGREE).max()
    assert distance < 3 / np.sqrt(DEGREE)  # Kolmogorov–Smirnov: about once in 10^7


@given(st.lists(st.integers(0, 2**FLOOD_BITS - 1), min_size=1, max_size=8))
@settings(max_examples=10, deadline=None)
def test_the_flood_is_one_number_in_every_prime(places: list[int]) -> None:
    high = np.resize(np.array(places, dtype=np.uint64), DEGREE)
    flood = _flood(high)[0].astype(object)
    low = flood[FLOODED - 1]
    value = low + PRIMES[FLOODED - 1] * (high.astype(object) - (1 << (FLOOD_BITS - 1)))
    for prime, limb in zip(PRIMES[:FLOODED], flood, strict=True):
        assert np.array_equal(value % prime, limb)


def test_noise_and_hiders_have_the_right_shape() -> None:
    noise = fresh_noise()[0]
    assert not noise[0].any()
    assert all(np.array_equal(limb, noise[1, 0]) for limb in noise[1])
    small = noise[1, 0].astype(float) - NOISE_BITS
    assert abs(small.mean()) < 0.25
    assert small.std() == pytest.approx(math.sqrt(NOISE_BITS / 2), rel=0.05)
    drawn, counts = np.unique(ternary(), return_counts=True)
    assert drawn.tolist() == [0, 1, P - 1]
    assert np.abs(counts - DEGREE / 3).max() < 6 * math.sqrt(DEGREE * 2 / 9)
    assert not np.array_equal(fresh_noise()[1], fresh_noise()[1])


@pytest.mark.slow
def test_replies_keep_their_room_over_many_products(holder: CuriousHolder) -> None:
    key = PublicKey(holder.public_key())
    for _ in range(200):
        x, v, mask = DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE)
        own, times = holder.encrypt(x), factor(encode(v))
        sent = flooded(key.hidden(0, factor(plaintext(ternary())), [(own, times)] * 8), mask)
        assert sent.coeff_modulus_size() == SENT
        assert holder.decryptor.invariant_noise_budget(sent) >= 1
        opened = decode(holder.decryptor.decrypt(sent))
        assert np.array_equal(opened, ring.add(ring.scale(ring.multiply(x, v), 8), mask))
