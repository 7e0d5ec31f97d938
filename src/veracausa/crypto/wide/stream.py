"""Uniform words from a seed of 32 bytes, by SHAKE-128: two who hold the seed draw the same words without a message."""

from __future__ import annotations

import hashlib
import math
import secrets

import numpy as np

from veracausa.crypto.wide.words import Words

SEED_BYTES = 32
_BLOCK = 1 << 17
"""Words drawn at a time."""


class Stream:
    """Every word is drawn once; there is no way back."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes")
        self._seed = seed
        self._blocks = 0
        self._left: Words = np.zeros(0, dtype=np.uint64)

    def take(self, shape: tuple[int, ...]) -> Words:
        count = math.prod(shape)
        parts = []
        while count > len(self._left):
            parts.append(self._left)
            count -= len(self._left)
            self._left = self._block()
        parts.append(self._left[:count])
        self._left = self._left[count:]
        return np.concatenate(parts).reshape(shape)

    def _block(self) -> Words:
        text = self._seed + self._blocks.to_bytes(8, "little")
        self._blocks += 1
        return np.frombuffer(hashlib.shake_128(text).digest(8 * _BLOCK), dtype="<u8").astype(np.uint64, copy=False)


def fresh_seed(seed: int | None, *purpose: str | int) -> bytes:
    """A secret seed from the system; or, in a simulation that must repeat, one that whoever knows `seed` knows too."""
    if seed is None:
        return secrets.token_bytes(SEED_BYTES)
    return hashlib.sha256("\x1f".join(map(str, ("insecure", seed, *purpose))).encode()).digest()
