"""A coin toss of all parties: numbers that everyone can compute afterwards, and that nobody could choose.

Every party commits to a nonce, and shows it only when it has everyone else's commitment. So whoever shows its nonce
last can not choose it by the others' any more: it can only stop, and then the run stops too.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from veracausa.errors import WireError

NONCE = 32
"""Bytes; a commitment has as many."""


def _digest(*words: str | int | bytes) -> bytes:
    """Of words with their lengths, so that no two lists of words are one."""
    found = hashlib.sha256()
    for word in words:
        part = word if isinstance(word, bytes) else str(word).encode()
        found.update(len(part).to_bytes(8, "big") + part)
    return found.digest()


class Toss:
    """What came of it. Each purpose has numbers of its own."""

    def __init__(self, seed: bytes) -> None:
        self.seed = seed

    def uniform(self, below: int, count: int, *purpose: str | int) -> NDArray[np.uint64]:
        """So many numbers, each equally likely among those below `below`, which has at most 63 bits."""
        seed = _digest("veracausa toss 1", self.seed, *purpose, below)
        return expanded(seed, below, count)


def expanded(seed: bytes, below: int, count: int) -> NDArray[np.uint64]:
    """SHAKE-128 of the seed, 8 bytes a number, without those that are too large."""
    mask = np.uint64((1 << below.bit_length()) - 1)
    size = 8 * (count + 16)
    while True:
        words = np.frombuffer(hashlib.shake_128(seed).digest(size), dtype="<u8") & mask
        kept = words[words < below]
        if kept.size >= count:
            return kept[:count].astype(np.uint64, copy=False)
        size *= 2  # hardly ever for a number that is just below a power of two


class TossedNonce:
    """One party's part in the toss of one start of a run."""

    def __init__(self, party: str, life: int) -> None:
        self.party, self.life = party, life
        self.nonce = secrets.token_bytes(NONCE)

    def commitment(self) -> bytes:
        return _commitment(self.party, self.life, self.nonce)

    def joined(self, commitments: Mapping[str, bytes], nonces: Mapping[str, bytes]) -> Toss:
        """The toss of all, once the others have shown what they had committed to."""
        for party, nonce in nonces.items():
            if not secrets.compare_digest(_commitment(party, self.life, nonce), commitments[party]):
                raise WireError("toss shown.nonce", f"{party!r} shows another nonce than it had committed to")
        every = {**nonces, self.party: self.nonce}
        parts = [word for party in sorted(every) for word in (party, every[party])]
        return Toss(_digest("veracausa toss seed 1", self.life, *parts))


def _commitment(party: str, life: int, nonce: bytes) -> bytes:
    return _digest("veracausa toss commitment 1", party, life, nonce)
