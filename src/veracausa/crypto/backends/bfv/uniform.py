"""Polynomials that both ends draw alike, instead of sending them: by the toss of all parties, or by a reply's seed."""

from __future__ import annotations

import os

import numpy as np

from veracausa.crypto.backends.bfv.ciphertexts import Residues
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, PRIMES, SENT
from veracausa.crypto.toss import Toss

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
