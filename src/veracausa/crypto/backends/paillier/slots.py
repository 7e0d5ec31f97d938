"""Several integers in one plaintext, each with room for its sum of products and for a mask that hides it.

A result v is an integer, not an element of the field: its size tells more than its residue. So beside the mask of the
field, t, a random multiple of P is added: y = v + t + P·ρ. The opener takes y modulo P, which is exactly the ring's
result. What else y tells is ρ + ⌊(v + t) / P⌋, and ρ is uniform over 2^STATISTICAL_BITS times as many numbers as that
fraction can be: whatever v is, y is within 2^−STATISTICAL_BITS (statistical distance, a slot) of a number that is made
from the ring's result alone. Distances add up: 2^26 slots, a long training, leave 2^−38.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from gmpy2 import mpz

from veracausa.crypto.fixed_point import VALUE_BITS, VALUE_LIMIT
from veracausa.crypto.ring import P, Ring
from veracausa.errors import InputError

STATISTICAL_BITS = 64
LARGEST_VALUE = int(VALUE_LIMIT * 2**VALUE_BITS)


@dataclass(frozen=True)
class Slots:
    """`count` slots of `bits` bits."""

    bits: int
    count: int
    offset: int
    """Multiples of P that keep a slot from falling below 0."""
    spread: int
    """Bits of the random multiple of P."""

    def pack(self, values: Sequence[int]) -> int:
        """Signed integers, the first in the lowest slot."""
        packed = mpz(0)
        for value in reversed(values):
            packed = (packed << self.bits) + value
        return int(packed)

    def hide(self, masks: Sequence[int]) -> int:
        """What is added to results so that their opener learns their residues only."""
        return self.pack([mask + P * (self.offset + secrets.randbits(self.spread)) for mask in masks])

    def open(self, packed: int, count: int) -> list[int]:
        """The residues of so many slots; none where there is more than fits."""
        if packed.bit_length() > self.bits * count:
            return []
        lowest = (mpz(1) << self.bits) - 1
        return [int((packed >> (self.bits * at) & lowest) % P) for at in range(count)]


@lru_cache(maxsize=64)
def slots_for(terms: int, largest: int, key_bits: int) -> Slots:
    """Slots for sums of so many products of elements of the field with integers up to `largest` in magnitude."""
    bound = terms * largest * (P - 1)
    offset = -(-bound // P)
    spread = STATISTICAL_BITS + (offset + 1).bit_length()
    highest = bound + P - 1 + P * (offset + (1 << spread) - 1)
    bits = highest.bit_length()
    count = (key_bits - 1) // bits  # a plaintext stays below 2^(key_bits − 1), and so below M
    if count < 1:
        raise InputError(
            f"a Paillier key of {key_bits} bits holds no masked sum of {terms} products: take smaller batches"
        )
    return Slots(bits, count, offset, spread)


@dataclass(frozen=True)
class Blocks:
    """How a matrix of results, (height, width), lies in ciphertexts: whole columns of it, as many as fit."""

    slots: Slots
    height: int
    width: int

    @property
    def columns(self) -> int:
        """Of one ciphertext."""
        return self.slots.count // self.height

    @property
    def ciphertexts(self) -> int:
        return -(-self.width // self.columns)

    def hiding(self, mask: Ring) -> list[int]:
        """What hides each ciphertext's part of a (height, width) matrix."""
        return [self.slots.hide(mask[:, at].T.ravel().tolist()) for at in self._parts()]

    def open(self, plains: Sequence[int]) -> Ring | None:
        """The matrix of residues, or None where a plaintext is larger than an honest one."""
        opened = []
        for plain, at in zip(plains, self._parts(), strict=True):
            residues = self.slots.open(plain, self.height * (at.stop - at.start))
            if not residues:
                return None
            opened.append(np.array(residues, dtype=np.int64).reshape(-1, self.height).T)
        return np.concatenate(opened, axis=1)

    def _parts(self) -> list[slice]:
        return [slice(at, min(at + self.columns, self.width)) for at in range(0, self.width, self.columns)]
