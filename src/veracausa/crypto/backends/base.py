"""What the protocol asks of an encryption: linear maps of one party's numbers, computed by another, masked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.ring import Ring, Small

Bytes = NDArray[np.uint8]


class EncryptedRows(ABC):
    """Another party's data, cut into batches of rows, under that party's key."""

    @abstractmethod
    def forward(self, batch: int, weights: Ring, mask: Ring) -> Bytes:
        """X·W + mask for the rows of a batch: (n, m), to be opened by the rows' owner."""

    @abstractmethod
    def backward(self, batch: int, gradient: Small, mask: Ring) -> Bytes:
        """Xᵀ·G + mask: (columns, m), to be opened by the rows' owner."""


class Encryption(ABC):
    """One party's key, and what it can do with the others'. A reply must tell its opener the masked result only."""

    name: str
    protects: bool
    """Whether who receives what was encrypted learns nothing from it."""

    @abstractmethod
    def public_key(self) -> Bytes:
        """What the others need to compute on this party's numbers."""

    @abstractmethod
    def encrypt_rows(self, batches: Sequence[Small], width: int) -> Bytes:
        """All batches, to be multiplied by `width` columns at a time; sent once, at set-up."""

    @abstractmethod
    def open_rows(self, key: Bytes, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        """What `encrypt_rows` of the owner of `key` gave, ready to be computed with; here, `width` is one's own."""

    @abstractmethod
    def encrypt(self, values: Ring) -> Bytes:
        """Elements of any shape."""

    @abstractmethod
    def inner_products(self, key: Bytes, encrypted: Bytes, values: Ring, mask: Ring) -> Bytes:
        """Σ over the last axis of what is encrypted, times `values` of the same shape, + mask."""

    @abstractmethod
    def decrypt(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        """The masked result of a computation under this party's key."""
