"""The plaintext twin of every encryption, NOT PROTECTED: the same integers and messages, for simulations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows, KeepableEncryption
from veracausa.crypto.randomness import KEY, KeyedMasks, Masks, Toss, drawn_key
from veracausa.crypto.ring import P, Ring, Small
from veracausa.errors import WireError


class PlainRows(EncryptedRows):
    def __init__(self, batches: Sequence[Small]) -> None:
        self.batches = list(batches)

    def forward(self, batches: Sequence[int], weights: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        asked = [self.batches[batch] for batch in batches]
        kept = masks.uniform(sum(map(len, asked)), weights.shape[2])
        return _bytes(self._forward(asked, weights, ring.negative(kept))), kept

    @staticmethod
    def _forward(asked: Sequence[Small], weights: Ring, mask: Ring) -> Ring:
        if _alike(asked):
            stacked = np.stack(asked)
            return ring.matmul(stacked, weights, mask.reshape(*stacked.shape[:2], -1)).reshape(mask.shape)
        parts = np.split(mask, np.cumsum([len(rows) for rows in asked])[:-1])
        done = [ring.matmul(*of_batch) for of_batch in zip(asked, weights, parts, strict=True)]
        return np.concatenate(done)

    def backward(self, batches: Sequence[int], gradients: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        asked = [self.batches[batch] for batch in batches]
        kept = masks.uniform(len(asked), asked[0].shape[1], gradients.shape[1])
        return _bytes(self._backward(asked, gradients, ring.negative(kept))), kept

    @staticmethod
    def _backward(asked: Sequence[Small], gradients: Ring, mask: Ring) -> Ring:
        if _alike(asked):
            stacked = np.stack(asked)
            return ring.matmul(stacked.swapaxes(1, 2), gradients.reshape(*stacked.shape[:2], -1), mask)
        parts = np.split(gradients, np.cumsum([len(rows) for rows in asked])[:-1])
        done = [ring.matmul(rows.T, part, plus) for rows, part, plus in zip(asked, parts, mask, strict=True)]
        return np.stack(done)


class SeededRows(PlainRows):
    """The owner's half of a product follows from a seed, and only the seed travels."""

    def forward(self, batches: Sequence[int], weights: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        asked = [self.batches[batch] for batch in batches]
        seed = drawn_key(masks)
        half = KeyedMasks(seed).uniform(sum(map(len, asked)), weights.shape[2])
        return _word(seed), self._forward(asked, weights, ring.negative(half))

    def backward(self, batches: Sequence[int], gradients: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        asked = [self.batches[batch] for batch in batches]
        seed = drawn_key(masks)
        half = KeyedMasks(seed).uniform(len(asked), asked[0].shape[1], gradients.shape[1])
        return _word(seed), self._backward(asked, gradients, ring.negative(half))


class NoEncryption(KeepableEncryption):
    """Nothing is hidden: who receives `encrypt_rows` has the data."""

    name = "none"
    protects = False

    def __init__(self, toss: Toss | None = None, party: str = "") -> None:
        """There is nothing to toss for."""

    def public_key(self) -> Bytes:
        return np.zeros(0, dtype=np.uint8)

    def meet(self, peer: str, key: Bytes) -> None:
        pass

    def secret_bytes(self) -> bytes:
        return b""

    @classmethod
    def of_kept(cls, kept: bytes, toss: Toss, party: str, public_key: Bytes) -> Self:
        return cls(toss, party)

    def expect_rows(self, sizes: Sequence[int], columns: int, width: int) -> None:
        pass

    def encrypt_rows(self, peer: str, batches: Sequence[Small], width: int) -> Bytes:
        return _bytes(np.concatenate(batches).astype(np.int64))

    def open_rows(self, peer: str, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        return PlainRows(self._opened(encrypted, sizes, columns))

    @staticmethod
    def _opened(encrypted: Bytes, sizes: Sequence[int], columns: int) -> list[Small]:
        rows = _numbers(encrypted, (sum(sizes), columns))
        if rows.size and np.abs(rows).max() >= 1 << 11:
            raise WireError("columns.rows", "holds numbers beyond the agreed range")
        parts = np.split(rows.astype(np.float64), np.cumsum(sizes)[:-1])
        return [np.ascontiguousarray(part) for part in parts]

    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return _elements(reply, (sum(sizes), width))

    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return _elements(reply, (len(sizes), columns, width))

    def encrypt(self, peer: str, number: int, values: Ring) -> Bytes:
        return _bytes(values)

    def products(self, peer: str, number: int, encrypted: Bytes, values: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        kept = masks.uniform(*values.shape)
        return _bytes(ring.subtract(ring.multiply(_elements(encrypted, values.shape), values), kept)), kept

    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        return _elements(reply, shape)


class NoEncryptionBySeeds(NoEncryption):
    """The same for the triples of a discovery. A reply is uniform whatever it masks, so a seed says all of it."""

    def open_rows(self, peer: str, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        return SeededRows(self._opened(encrypted, sizes, columns))

    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return _of_seed(reply, (sum(sizes), width))

    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return _of_seed(reply, (len(sizes), columns, width))

    def products(self, peer: str, number: int, encrypted: Bytes, values: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        seed = drawn_key(masks)
        product = ring.multiply(_elements(encrypted, values.shape), values)
        return _word(seed), ring.subtract(product, KeyedMasks(seed).uniform(*values.shape))

    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        return _of_seed(reply, shape)


def _word(seed: bytes) -> Bytes:
    return np.frombuffer(bytearray(seed), dtype=np.uint8)


def _of_seed(reply: Bytes, shape: tuple[int, ...]) -> Ring:
    if reply.size != KEY:
        raise WireError("encrypted", f"{reply.size} bytes for a seed of {KEY}")
    return KeyedMasks(reply.tobytes()).uniform(*shape)


def _alike(batches: Sequence[Small]) -> bool:
    return len({len(rows) for rows in batches}) == 1


def _bytes(values: NDArray[np.int64]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _numbers(data: Bytes, shape: tuple[int, ...]) -> NDArray[np.int64]:
    if data.size != 8 * int(np.prod(shape)):
        raise WireError("encrypted", f"{data.size} bytes for numbers of shape {shape}")
    return np.ascontiguousarray(data).view(np.int64).reshape(shape)


def _elements(data: Bytes, shape: tuple[int, ...]) -> Ring:
    numbers = _numbers(data, shape)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= P):
        raise WireError("encrypted", "holds numbers outside the field")
    return numbers
