"""What the protocol asks of an encryption: products with one party's numbers, computed by another, masked.

All of it happens ahead of the steps that use it. Whatever an implementation does, decrypting a reply gives exactly the
product plus the mask in the field, so that all of them agree bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.ring import Ring, Small

Bytes = NDArray[np.uint8]


class EncryptedRows(ABC):
    """Another party's batches of rows under that party's key, ready to be multiplied by one's own numbers."""

    @abstractmethod
    def forward(self, batches: Sequence[int], weights: Ring, mask: Ring) -> Bytes:
        """X·W + mask of each asked batch, for the rows' owner to decrypt; a batch may be asked more than once.

        `weights` is (asked batches, columns, width), `mask` (all their rows, width).
        """

    @abstractmethod
    def backward(self, batches: Sequence[int], gradients: Ring, mask: Ring) -> Bytes:
        """Xᵀ·G + mask of each asked batch; `gradients` is (all their rows, width), `mask` (batches, columns, width)."""


class Encryption(ABC):
    """One party's key, and what it can do with the others'. A reply must tell its opener the masked result only.

    The secret key lives and dies with this object: it has no way to be written down.
    """

    name: str
    protects: bool
    """Whether who receives what was encrypted learns nothing from it."""

    @abstractmethod
    def public_key(self) -> Bytes:
        """What the others need to compute on this party's numbers."""

    @abstractmethod
    def encrypt_rows(self, batches: Sequence[Small], width: int) -> Bytes:
        """All batches, for a party that will multiply them by `width` columns; sent once, at set-up."""

    @abstractmethod
    def open_rows(self, key: Bytes, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        """What `encrypt_rows` of the owner of `key` gave, ready to be computed with; here, `width` is one's own.

        `sizes` are the rows of every batch. What is not exactly of the agreed form is refused with a `WireError`.
        """

    @abstractmethod
    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        """(all rows, width) of the asked batches, whose rows are `sizes`."""

    @abstractmethod
    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        """(asked batches, columns, width)."""

    @abstractmethod
    def encrypt(self, values: Ring) -> Bytes:
        """Elements of any shape, under one's own key."""

    @abstractmethod
    def products(self, key: Bytes, encrypted: Bytes, values: Ring, mask: Ring) -> Bytes:
        """Element by element, what the owner of `key` encrypted times `values`, + mask; all of one shape."""

    @abstractmethod
    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        """The masked products of what was encrypted here."""
