"""Where masks and shares come from: the system's entropy, or, in a simulation that must repeat, a seed."""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod

import numpy as np

from veracausa.crypto.ring import BITS, P, Ring
from veracausa.seeding import derive


class Draws(ABC):
    """One party's randomness."""

    @abstractmethod
    def begin(self, chapter: int) -> None:
        """A new stretch of the protocol starts here; after a resume it may start anew."""

    @abstractmethod
    def uniform(self, *shape: int) -> Ring:
        """Elements of the field, each equally likely."""

    @abstractmethod
    def generator(self, *purpose: str | int) -> np.random.Generator:
        """For what is random but no secret of a share: initial decoders, rounding."""


class SecureDraws(Draws):
    """From the operating system. Nothing is ever drawn twice, after a resume either."""

    def begin(self, chapter: int) -> None:
        pass

    def uniform(self, *shape: int) -> Ring:
        count = int(np.prod(shape))
        drawn = self._words(count)
        while (beyond := drawn >= P).any():  # about once in 2⁴¹
            drawn[beyond] = self._words(int(beyond.sum()))
        return drawn.reshape(shape)

    def generator(self, *purpose: str | int) -> np.random.Generator:
        return np.random.default_rng(secrets.randbits(128))

    @staticmethod
    def _words(count: int) -> Ring:
        words = np.frombuffer(os.urandom(8 * count), dtype=np.int64)
        return words & ((1 << BITS) - 1)


class InsecureSeededDraws(Draws):
    """From a seed: who knows it knows every mask. For simulations, which then repeat bit by bit."""

    def __init__(self, seed: int, party: str) -> None:
        self.seed, self.party = seed, party
        self.begin(0)

    def begin(self, chapter: int) -> None:
        self._rng = self.generator("shares", chapter)

    def uniform(self, *shape: int) -> Ring:
        return self._rng.integers(0, P, shape, dtype=np.int64)

    def generator(self, *purpose: str | int) -> np.random.Generator:
        return np.random.default_rng(derive(self.seed, self.party, *purpose))


def make_draws(seed: int | None, party: str) -> Draws:
    return SecureDraws() if seed is None else InsecureSeededDraws(seed, party)
