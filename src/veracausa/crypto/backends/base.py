"""The contract of an encryption: products with one party's numbers, computed by another party and masked.

All products are made in the offline phase, before the steps that use them. What the owner decrypts from a reply and the
share that the other party keeps add up to exactly the product in the field. So all encryptions agree bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.randomness import Masks, Toss
from veracausa.crypto.ring import Ring, Small

Bytes = NDArray[np.uint8]


class EncryptedRows(ABC):
    """Another party's batches of rows under that party's key, ready to be multiplied by one's own numbers."""

    @abstractmethod
    def forward(self, batches: Sequence[int], weights: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        """X·W of each asked batch, shared: a reply for the rows' owner to decrypt, and one's own uniform share.

        A batch may be asked more than once. `weights` is (asked batches, columns, width), the share (all their rows,
        width). `masks` is where it is drawn from, if the encryption does not draw it itself.
        """

    @abstractmethod
    def backward(self, batches: Sequence[int], gradients: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        """Xᵀ·G of each asked batch; `gradients` is (all their rows, width), the share (batches, columns, width)."""


class Encryption(ABC):
    """One party's key, and what it can do with the others'. A reply must tell its opener the masked result only.

    The secret key lives and dies with this object: it has no way to be written down, but for the one use that
    `KeepableEncryption` names.
    """

    name: str
    protects: bool
    """Whether who receives what was encrypted learns nothing from it."""

    @abstractmethod
    def public_key(self) -> Bytes:
        """What the others need to compute on this party's numbers."""

    @abstractmethod
    def meet(self, peer: str, key: Bytes) -> None:
        """Take in a peer's public key, which is refused with a `WireError` where it can not be one."""

    @abstractmethod
    def encrypt_rows(self, peer: str, batches: Sequence[Small], width: int) -> Bytes:
        """All batches, for a peer that will multiply them by `width` columns; sent once, at set-up."""

    @abstractmethod
    def open_rows(self, peer: str, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        """What `encrypt_rows` of a peer that was met gave, ready to be computed with; here, `width` is one's own.

        `sizes` are the rows of every batch. What is not exactly of the agreed form is refused with a `WireError`.
        """

    @abstractmethod
    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        """(all rows, width) of the asked batches, whose rows are `sizes`."""

    @abstractmethod
    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        """(asked batches, columns, width)."""

    @abstractmethod
    def encrypt(self, peer: str, number: int, values: Ring) -> Bytes:
        """Elements of any shape, under one's own key, for one peer; a number is used once."""

    @abstractmethod
    def products(self, peer: str, number: int, encrypted: Bytes, values: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        """Element by element, what a peer encrypted under this number times `values`: a reply, and one's own share."""

    @abstractmethod
    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        """The masked products of what was encrypted here."""


class KeepableEncryption(Encryption):
    """An encryption whose key can outlive the process, for one use: to open answers of an encrypted head.

    The head of a blind training is encrypted once, and stays with the passive parties. So the active party has to keep
    the key that opens their answers, in a secret file of its own. Nothing else keeps a key.
    """

    @abstractmethod
    def secret_bytes(self) -> bytes:
        """The secret key, for that file alone."""

    @classmethod
    @abstractmethod
    def of_kept(cls, kept: bytes, toss: Toss, party: str, public_key: Bytes) -> Self:
        """The party's key again, which opens replies and refuses to encrypt. `expect_rows` says what it will open."""

    @abstractmethod
    def expect_rows(self, sizes: Sequence[int], columns: int, width: int) -> None:
        """Rows of this form were encrypted under the kept key, and will be answered."""
