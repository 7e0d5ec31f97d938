"""Replies open to what was computed, their noise is what it is said to be, and they use all numbers there are."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

seal = pytest.importorskip("seal")

from bfv_holder import CuriousHolder, centred  # noqa: E402
from veracausa.crypto import ring  # noqa: E402
from veracausa.crypto.backends.bfv import ciphertexts as parameters  # noqa: E402
from veracausa.crypto.backends.bfv.ciphertexts import (  # noqa: E402
    ALL,
    DEGREE,
    MOST_TERMS,
    NOISE_BITS,
    PRIMES,
    SENT,
    UNUSED_PRIME,
    context,
    decode,
    encode,
    factor,
    load,
    plaintext,
    rounded,
    scheme,
)
from veracausa.crypto.backends.bfv.keys import BfvPublicKey, answered, first_half, fresh_noise, ternary  # noqa: E402
from veracausa.crypto.randomness import SecureDraws  # noqa: E402
from veracausa.crypto.ring import P, Ring  # noqa: E402

DRAWS = SecureDraws()


def is_prime(n: int) -> bool:
    return all(pow(base, n - 1, n) == 1 for base in (2, 3, 5, 7, 11, 13))


def test_the_parameters_are_what_seal_calls_128_bits() -> None:
    assert context().parameters_set()
    bits = math.log2(math.prod(PRIMES) * UNUSED_PRIME)
    assert bits <= seal.CoeffModulus.MaxBitCount(DEGREE, seal.sec_level_type.tc128) == 218
    assert len({*PRIMES, UNUSED_PRIME, P}) == len(PRIMES) + 2
    for prime in (*PRIMES, UNUSED_PRIME, P):
        assert prime % (2 * DEGREE) == 1
        assert is_prime(prime)


def test_a_reply_that_opens_wrongly_is_not_met_in_practice() -> None:
    assert parameters.wrong_bits(parameters.typical_noise(1)) > 43
    assert parameters.wrong_bits(parameters.typical_noise(MOST_TERMS)) > 41


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
    key = BfvPublicKey(holder.toss, "holder", holder.public_key())
    x, v = DRAWS.uniform(DEGREE), worst(kind)
    own, times = holder.encrypt(x), factor(encode(v))
    hidden = key.hidden(0, factor(plaintext(ternary())), [(holder.encrypt(x), times)] * (terms - 1) + [(own, times)])
    bare = scheme().evaluator.transform_from_ntt(hidden)
    for _ in range(ALL - SENT):
        scheme().evaluator.mod_switch_to_next_inplace(bare)
    before = holder.noise(bare)
    first = first_half(os.urandom(32), 0)
    second, kept = answered(hidden, first)
    opened = holder.decrypt(first, second)
    assert np.array_equal(ring.add(opened, kept), ring.scale(ring.multiply(x, v), terms))
    assert np.abs(before).max() < parameters.largest_noise(terms)
    if kind == "uniform" and terms == 1:
        assert np.sqrt(np.mean(before**2)) == pytest.approx(parameters.typical_noise(terms), rel=0.05)
    # What lies between the reply and its message: all numbers that there are between two messages, alike.
    after = np.sort(holder.noise(load(first, second, transformed=False)) / (math.prod(PRIMES[:SENT]) / P) + 0.5)
    assert np.abs(after - np.arange(DEGREE) / DEGREE).max() < 3 / np.sqrt(DEGREE)  # about once in 10^7


def test_rounding_finds_the_nearest_message() -> None:
    """Exactly, by whole numbers: also two units from the middle between two messages, of 2^61 that there are."""
    modulus = math.prod(PRIMES[:SENT])
    message = DRAWS.uniform(DEGREE).astype(object)
    half = modulus // (2 * P) - 2
    offset = np.array([half if at % 2 else -half for at in range(DEGREE)], dtype=object)
    value = ((2 * message * modulus + P) // (2 * P) + offset) % modulus
    residues = np.array([value % prime for prime in PRIMES[:SENT]]).astype(np.uint64)
    assert np.array_equal(rounded(residues), decode(plaintext(message.astype(np.uint64))))


def test_noise_and_hiders_have_the_right_shape() -> None:
    noise = fresh_noise()
    small = centred(noise[0].astype(object), PRIMES[0])
    for prime, limb in zip(PRIMES, noise, strict=True):
        assert np.array_equal(centred(limb.astype(object), prime), small)
    assert np.abs(small).max() <= NOISE_BITS
    assert abs(small.astype(float).mean()) < 0.25
    assert small.astype(float).std() == pytest.approx(math.sqrt(NOISE_BITS / 2), rel=0.05)
    drawn, counts = np.unique(ternary(), return_counts=True)
    assert drawn.tolist() == [0, 1, P - 1]
    assert np.abs(counts - DEGREE / 3).max() < 6 * math.sqrt(DEGREE * 2 / 9)
    assert not np.array_equal(fresh_noise(), fresh_noise())


@pytest.mark.slow
def test_replies_open_to_the_product_many_times(holder: CuriousHolder) -> None:
    key = BfvPublicKey(holder.toss, "holder", holder.public_key())
    for _ in range(200):
        x, v = DRAWS.uniform(DEGREE), DRAWS.uniform(DEGREE)
        own, times = holder.encrypt(x), factor(encode(v))
        first = first_half(os.urandom(32), 0)
        second, kept = answered(key.hidden(0, factor(plaintext(ternary())), [(own, times)] * 8), first)
        assert second.shape == (SENT, DEGREE)
        assert np.array_equal(ring.add(holder.decrypt(first, second), kept), ring.scale(ring.multiply(x, v), 8))
