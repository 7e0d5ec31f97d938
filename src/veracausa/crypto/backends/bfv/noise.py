"""The randomness that hides how a reply came about, from the system's generator."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.backends.bfv.ciphertexts import Residues
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, FLOOD_BITS, FLOODED, NOISE_BITS, PRIMES
from veracausa.crypto.ring import P

_LAST = PRIMES[FLOODED - 1]
_SPARE = 64 - _LAST.bit_length()


def _words(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def ternary() -> Residues:
    """DEGREE coefficients, each −1, 0 or 1 with equal chances, modulo P."""
    drawn = np.zeros(0, dtype=np.uint8)
    while drawn.size < DEGREE:
        fresh = np.frombuffer(os.urandom(DEGREE + DEGREE // 16), dtype=np.uint8)
        drawn = np.concatenate([drawn, fresh[fresh < 255]])
    return np.array([0, 1, P - 1], dtype=np.uint64)[drawn[:DEGREE] % 3]


def fresh_noise() -> tuple[Residues, Residues]:
    """Noise for the second polynomial of a sum of products, and the flood for the first, once a prime is dropped."""
    words = _words(DEGREE)
    below = np.uint64((1 << NOISE_BITS) - 1)
    weights = [np.bitwise_count(words >> np.uint64(shift) & below).astype(np.int64) for shift in (0, NOISE_BITS)]
    high = (words >> np.uint64(64 - FLOOD_BITS)).astype(np.int64) - (1 << (FLOOD_BITS - 1))
    return _small(weights[0] - weights[1]), _flood(high)


def _small(noise: NDArray[np.int64]) -> Residues:
    out = np.zeros((2, ALL, DEGREE), dtype=np.uint64)
    for at, prime in enumerate(PRIMES):
        out[1, at] = np.where(noise < 0, noise + prime, noise)
    return out


def _flood(high: NDArray[np.int64]) -> Residues:
    """low + p·high with low uniform below the prime p that is dropped next: every number of the range alike."""
    low = _words(DEGREE) >> np.uint64(_SPARE)
    while (beyond := low >= _LAST).any():  # about once in 2³³ floods
        low[beyond] = _words(int(beyond.sum())) >> np.uint64(_SPARE)
    out = np.zeros((2, FLOODED, DEGREE), dtype=np.uint64)
    out[0, FLOODED - 1] = low
    for at, prime in enumerate(PRIMES[: FLOODED - 1]):
        out[0, at] = np.mod(low.astype(np.int64) + _LAST % prime * high, prime)
    return out
