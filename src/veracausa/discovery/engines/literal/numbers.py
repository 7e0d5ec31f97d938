"""Matrices of fixed-point numbers, one in a ciphertext, under Paillier or (in its plaintext twin) in clear.

The paper computes with floats and does not say how they are encrypted. Here a number is an integer at a public scale:
columns have COLUMN_BITS fractional bits, encoders and gradients WEIGHT_BITS, products the sum of both. So a feature
differs from that of floats by less than 2^-20.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto.backends.base import Bytes
from veracausa.errors import InputError, WireError

COLUMN_BITS = 24
WEIGHT_BITS = 40
PRODUCT_BITS = COLUMN_BITS + WEIGHT_BITS
PLAIN_BYTES = 16
"""Of a number in clear."""
LEAST_KEY_BITS = 1024
"""No smaller key is made, not even to play."""

Integers = NDArray[Any]
"""Python's integers: products have more than 64 bits."""


def encoded(values: Array, bits: int) -> Integers:
    """The integers nearest to values · 2^bits."""
    return np.array([round(value * 2**bits) for value in values.ravel().tolist()], dtype=object).reshape(values.shape)


def decoded(integers: Sequence[int], bits: int, shape: tuple[int, ...]) -> Array:
    return np.array([value / 2**bits for value in integers], dtype=np.float64).reshape(shape)


class Numbers(ABC):
    """One party's key, and the public keys of the others. It counts what it computes."""

    def __init__(self) -> None:
        self.counts = {"encrypted": 0, "multiplied": 0, "masked": 0, "decrypted": 0}

    @abstractmethod
    def key(self) -> Bytes:
        """The public key, for the others."""

    @abstractmethod
    def meet(self, peer: str, key: Bytes) -> None: ...

    @abstractmethod
    def encrypt(self, values: Integers) -> Bytes:
        """Each of these under the own key."""

    @abstractmethod
    def read(self, owner: str, data: Bytes, count: int) -> list[int]:
        """So many numbers under the key of `owner`; anything else is refused."""

    @abstractmethod
    def masked_product(self, owner: str, left: Integers, right: Integers, masks: Integers) -> Bytes:
        """left @ right − masks, where `right` is encrypted under the key of `owner` (algorithm 1, the first party)."""

    @abstractmethod
    def decrypt(self, data: Bytes, count: int) -> list[int]:
        """So many numbers under the own key, signed (algorithm 1, the second party)."""


class PlainNumbers(Numbers):
    """The same integers in clear, so that the protocol's steps can be followed without its cost."""

    def key(self) -> Bytes:
        return np.zeros(1, dtype=np.uint8)

    def meet(self, peer: str, key: Bytes) -> None:
        pass

    def encrypt(self, values: Integers) -> Bytes:
        self.counts["encrypted"] += values.size
        return _written(values.ravel().tolist())

    def read(self, owner: str, data: Bytes, count: int) -> list[int]:
        if data.size != PLAIN_BYTES * count:
            raise WireError("numbers", f"{data.size} bytes, but {count} numbers are {PLAIN_BYTES * count}")
        whole = data.tobytes()
        starts = range(0, len(whole), PLAIN_BYTES)
        return [int.from_bytes(whole[at : at + PLAIN_BYTES], "big", signed=True) for at in starts]

    def masked_product(self, owner: str, left: Integers, right: Integers, masks: Integers) -> Bytes:
        self.counts["multiplied"] += left.size * right.shape[1]
        self.counts["masked"] += masks.size
        return _written((left @ right - masks).ravel().tolist())

    def decrypt(self, data: Bytes, count: int) -> list[int]:
        self.counts["decrypted"] += count
        return self.read("", data, count)


class PaillierNumbers(Numbers):
    """Additive homomorphic encryption as the paper takes it: one number in a ciphertext."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        if bits < LEAST_KEY_BITS:
            raise InputError(f"key_bits: {bits} bits are broken in no time; take {LEAST_KEY_BITS} at least")
        from veracausa.crypto.backends.paillier.keys import PaillierPublicKey, PaillierSecretKey

        self._secret = PaillierSecretKey(bits)
        self._keys: dict[str, PaillierPublicKey] = {}
        self._read_key = PaillierPublicKey.read

    def key(self) -> Bytes:
        return self._secret.public.write()

    def meet(self, peer: str, key: Bytes) -> None:
        """It has as many bits as one's own."""
        self._keys[peer] = self._read_key(key, self._secret.public.bits)

    def encrypt(self, values: Integers) -> Bytes:
        self.counts["encrypted"] += values.size
        modulus = self._secret.public.modulus
        numbers = (self._secret.encrypt(value % modulus) for value in values.ravel().tolist())
        return self._secret.public.write_ciphertexts("literal", numbers)

    def read(self, owner: str, data: Bytes, count: int) -> list[int]:
        return self._keys[owner].read_ciphertexts("literal", data, count)

    def masked_product(self, owner: str, left: Integers, right: Integers, masks: Integers) -> Bytes:
        from gmpy2 import invert, powmod

        key = self._keys[owner]
        self.counts["multiplied"] += left.size * right.shape[1]
        self.counts["masked"] += masks.size
        columns = [[(c, invert(c, key.square)) for c in column] for column in right.T.tolist()]

        def products() -> Iterable[int]:
            for row, hidden in zip(left.tolist(), masks.tolist(), strict=True):
                for column, mask in zip(columns, hidden, strict=True):
                    total = 1
                    for factor, (one, inverse) in zip(row, column, strict=True):
                        total = total * powmod(one if factor >= 0 else inverse, abs(factor), key.square) % key.square
                    yield key.add(total, -mask % key.modulus)

        return key.write_ciphertexts("literal", products())

    def decrypt(self, data: Bytes, count: int) -> list[int]:
        self.counts["decrypted"] += count
        public = self._secret.public
        plains = [int(self._secret.decrypt(c)) for c in public.read_ciphertexts("literal", data, count)]
        return [plain if plain <= public.modulus // 2 else plain - int(public.modulus) for plain in plains]


def numbers_of(encryption: str, bits: int) -> Numbers:
    """What hides numbers in this protocol: `paillier`, or `none`."""
    return PaillierNumbers(bits) if encryption == "paillier" else PlainNumbers()


def _written(values: Iterable[int]) -> Bytes:
    whole = b"".join(value.to_bytes(PLAIN_BYTES, "big", signed=True) for value in values)
    return np.frombuffer(bytearray(whole), dtype=np.uint8)
