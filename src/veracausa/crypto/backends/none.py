"""The plaintext twin of every encryption, NOT PROTECTED: the same integers and messages, for simulations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows, Encryption
from veracausa.crypto.ring import Ring, Small
from veracausa.errors import WireError


class PlainRows(EncryptedRows):
    def __init__(self, batches: Sequence[Small]) -> None:
        self.batches = list(batches)

    def forward(self, batch: int, weights: Ring, mask: Ring) -> Bytes:
        return _bytes(ring.matmul(self.batches[batch], weights, mask))

    def backward(self, batch: int, gradient: Small, mask: Ring) -> Bytes:
        return _bytes(ring.reduce(ring.small_matmul(self.batches[batch].T, gradient) + mask))


class NoEncryption(Encryption):
    """Nothing is hidden: who receives `encrypt_rows` has the data."""

    name = "none"
    protects = False

    def public_key(self) -> Bytes:
        return np.zeros(0, dtype=np.uint8)

    def encrypt_rows(self, batches: Sequence[Small], width: int) -> Bytes:
        return _bytes(np.concatenate(batches).astype(np.int64))

    def open_rows(self, key: Bytes, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        rows = _numbers(encrypted, (sum(sizes), columns)).astype(np.float64)
        return PlainRows([np.ascontiguousarray(part) for part in np.split(rows, np.cumsum(sizes)[:-1])])

    def encrypt(self, values: Ring) -> Bytes:
        return _bytes(values)

    def inner_products(self, key: Bytes, encrypted: Bytes, values: Ring, mask: Ring) -> Bytes:
        return _bytes(ring.add(ring.total(ring.multiply(_numbers(encrypted, values.shape), values), -1), mask))

    def decrypt(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        return _numbers(reply, shape)


def _bytes(values: NDArray[np.int64]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _numbers(data: Bytes, shape: tuple[int, ...]) -> Ring:
    if data.size != 8 * int(np.prod(shape)):
        raise WireError("encrypted", f"{data.size} bytes for numbers of shape {shape}")
    return data.view(np.int64).reshape(shape)
