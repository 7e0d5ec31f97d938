"""The randomness of encryptions and of replies, from the system's generator."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.backends.bfv.ciphertexts import Residues
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, NOISE_BITS, PRIMES, SENT
from veracausa.crypto.ring import P
from veracausa.crypto.toss import Toss

_TERNARY = np.array([0, 1, P - 1], dtype=np.uint64)


def _words(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def ternary() -> Residues:
    """DEGREE coefficients, each −1, 0 or 1 with equal chances, modulo P."""
    drawn = np.zeros(0, dtype=np.uint8)
    while drawn.size < DEGREE:
        fresh = np.frombuffer(os.urandom(DEGREE + DEGREE // 16), dtype=np.uint8)
        drawn = np.concatenate([drawn, fresh[fresh < 255]])
    return _TERNARY[drawn[:DEGREE] % 3]


def fresh_noise() -> Residues:
    """A polynomial of small numbers modulo all primes, as SEAL draws them."""
    weights = np.bitwise_count(_words(DEGREE) & np.uint64((1 << 2 * NOISE_BITS) - 1)).astype(np.uint64)
    out = np.empty((ALL, DEGREE), dtype=np.uint64)
    for at, prime in enumerate(PRIMES):
        out[at] = (weights + np.uint64(prime - NOISE_BITS)) % np.uint64(prime)
    return out


SEED = 32
"""Bytes that stand for the first polynomials of a reply."""


def second_half(toss: Toss, *purpose: str | int) -> Residues:
    """Of one ciphertext, transformed: neither its owner nor anyone else can choose it."""
    return np.stack([toss.uniform(PRIMES[at], DEGREE, "second half", *purpose, at) for at in range(ALL)])


def first_half(seed: bytes, number: int) -> Residues:
    """Of one reply; a seed serves one message."""
    drawn = Toss(seed)
    return np.stack([drawn.uniform(PRIMES[at], DEGREE, "first half", number, at) for at in range(SENT)])


def fresh_seed() -> bytes:
    return os.urandom(SEED)
