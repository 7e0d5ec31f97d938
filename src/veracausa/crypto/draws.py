"""Where masks and shares come from: the system's entropy, or, in a simulation that must repeat, a seed."""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod

import numpy as np

from veracausa.crypto.ring import BITS, P, Ring


class Masks(ABC):
    """A stream of elements of the field, each equally likely."""

    @abstractmethod
    def uniform(self, *shape: int) -> Ring: ...


class Draws(ABC):
    """One party's randomness."""

    @abstractmethod
    def masks(self, *purpose: str | int) -> Masks:
        """A stream for one purpose, which says when and for whom: nothing is drawn for the same one twice."""

    @abstractmethod
    def generator(self, *purpose: str | int) -> np.random.Generator:
        """For what is random but no secret of a share: initial decoders, rounding."""


class SecureDraws(Draws, Masks):
    """From the operating system. Nothing is ever drawn twice, whatever it is for."""

    def masks(self, *purpose: str | int) -> Masks:
        return self

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


def make_draws(seed: int | None, party: str) -> Draws:
    return SecureDraws() if seed is None else InsecureSeededDraws(seed, party)
