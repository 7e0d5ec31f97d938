"""The randomness that hides how a reply came about, from the system's generator."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.backends.bfv.ciphertexts import Residues
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, FLOOD_BITS, FLOODED, NOISE_BITS, PRIMES
from veracausa.crypto.ring import P

_DROPPED = PRIMES[FLOODED - 1]
_SPARE = np.uint64(64 - _DROPPED.bit_length())
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


def fresh_noise() -> tuple[Residues, Residues]:
    """Noise for the second polynomial of a sum of products, and the flood for the first, once a prime is dropped."""
    words = _words(DEGREE)
    small = np.zeros((2, ALL, DEGREE), dtype=np.uint64)
    # SEAL's noise + NOISE_BITS: a shift that everyone knows hides as much, and spares the sign.
    small[1] = np.bitwise_count(words & np.uint64((1 << 2 * NOISE_BITS) - 1))
    return small, _flood(words >> np.uint64(64 - FLOOD_BITS))


def _flood(high: NDArray[np.uint64]) -> Residues:
    """low + p·(high − 2^(FLOOD_BITS − 1)), low uniform below the prime p that is dropped next: all numbers alike."""
    low = _words(DEGREE) >> _SPARE
    while (beyond := low >= _DROPPED).any():  # about once in 2³³ floods
        low[beyond] = _words(int(beyond.sum())) >> _SPARE
    out = np.zeros((2, FLOODED, DEGREE), dtype=np.uint64)
    out[0, FLOODED - 1] = low
    for at, prime in enumerate(PRIMES[: FLOODED - 1]):
        # At most 2^60 + 2^19·2^24 + 2^56: no overflow.
        centre = -(_DROPPED << (FLOOD_BITS - 1)) % prime
        value = low + np.uint64(_DROPPED % prime) * high + np.uint64(centre)
        out[0, at] = value - value // np.uint64(prime) * np.uint64(prime)
    return out
