"""Where random numbers come from: a stream cipher, the operating system, or a coin toss of all parties.

In a coin toss every party commits to a nonce, and shows it only when it has everyone else's commitment. Whoever shows
its nonce last cannot choose it by the others' any more: it can only stop, and then the run stops too.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.ring import BITS, P, Ring
from veracausa.errors import WireError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext


KEY = 32
"""Bytes."""


class Keystream:
    """Every word is drawn once; there is no way back. A key serves one stream for every number."""

    def __init__(self, key: bytes, number: int = 0) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        self._stream: CipherContext = Cipher(
            algorithms.ChaCha20(key, bytes(8) + number.to_bytes(8, "little")), mode=None
        ).encryptor()

    def words(self, count: int) -> NDArray[np.uint32]:
        return np.frombuffer(self._stream.update(bytes(4 * count)), dtype="<u4")


def subkey(key: bytes, *purpose: str | int | memoryview) -> bytes:
    """A key for one purpose, by keyed BLAKE2b: from it nothing follows about `key` or the keys of other purposes."""
    digest = hashlib.blake2b(key=key, digest_size=KEY)
    for word in purpose:
        part = word if isinstance(word, memoryview) else str(word).encode()
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def uniform_of(words: Callable[[int], Ring], count: int) -> Ring:
    """So many elements of the field, each equally likely, of 59 bits a word that `words` gives."""
    drawn = words(count)
    while (beyond := drawn >= P).any():  # about once in 2⁴¹
        drawn[beyond] = words(int(beyond.sum()))
    return drawn


class Masks(ABC):
    """A stream of elements of the field, each equally likely."""

    @abstractmethod
    def uniform(self, *shape: int) -> Ring: ...


class RandomSource(ABC):
    """One party's randomness."""

    @abstractmethod
    def masks(self, *purpose: str | int) -> Masks:
        """A stream for one purpose, which says when and for whom: nothing is drawn for the same one twice."""

    @abstractmethod
    def generator(self, *purpose: str | int) -> np.random.Generator:
        """For what is random but no secret of a share: initial decoders, rounding."""


class SecureDraws(RandomSource, Masks):
    """From the operating system. Nothing is ever drawn twice, whatever it is for."""

    def masks(self, *purpose: str | int) -> Masks:
        return self

    def uniform(self, *shape: int) -> Ring:
        return uniform_of(self._words, math.prod(shape)).reshape(shape)

    def generator(self, *purpose: str | int) -> np.random.Generator:
        return np.random.default_rng(secrets.randbits(128))

    @staticmethod
    def _words(count: int) -> Ring:
        words = np.frombuffer(os.urandom(8 * count), dtype=np.int64)
        return words & ((1 << BITS) - 1)


class InsecureSeededDraws(RandomSource):
    """From a seed: who knows it knows every mask. For simulations, which then repeat bit by bit."""

    def __init__(self, seed: int, party: str) -> None:
        self.seed, self.party = seed, party

    def masks(self, *purpose: str | int) -> Masks:
        return _SeededMasks(self.generator(*purpose))

    def generator(self, *purpose: str | int) -> np.random.Generator:
        from veracausa.seeding import derive  # brings torch along, which a process without a seed can do without

        return np.random.default_rng(derive(self.seed, self.party, *purpose))


class _SeededMasks(Masks):
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def uniform(self, *shape: int) -> Ring:
        return self._rng.integers(0, P, shape, dtype=np.int64)


class KeyedMasks(Masks):
    """From a key: two who have it have the same masks, and nobody has to send them."""

    def __init__(self, key: bytes, number: int = 0) -> None:
        """Streams of one key with different numbers have nothing in common."""
        self._stream = Keystream(key, number)

    def uniform(self, *shape: int) -> Ring:
        return uniform_of(self._words, math.prod(shape)).reshape(shape)

    def _words(self, count: int) -> Ring:
        return self._stream.words(2 * count).view(np.int64) & ((1 << BITS) - 1)


def drawn_key(masks: Masks) -> bytes:
    """A key for `KeyedMasks`."""
    return masks.uniform(KEY // 4).astype("<u4").tobytes()


def make_draws(seed: int | None, party: str) -> RandomSource:
    return SecureDraws() if seed is None else InsecureSeededDraws(seed, party)


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
