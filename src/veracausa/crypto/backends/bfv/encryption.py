"""The protocol's products under BFV: data encrypted once, multiplied by a peer, masked and sent back small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows, Encryption
from veracausa.crypto.backends.bfv.keys import BfvPublicKey, BfvSecretKey
from veracausa.crypto.backends.bfv.packing import Packing
from veracausa.crypto.backends.bfv.products import (
    BFVRows,
    backward_answer,
    decrypted_products,
    encrypted_rows,
    encrypted_values,
    forward_answer,
    products_with,
)
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import Ring, Small
from veracausa.crypto.toss import Toss
from veracausa.errors import WireError


class BFV(Encryption):
    """One party's BFV key. All that is hidden rests on ring-LWE, with polynomials that no party chose.

    Masks come from replies themselves, and so from the system, whatever the caller would draw them from.
    """

    name = "bfv"
    protects = True

    def __init__(self, toss: Toss, party: str) -> None:
        self.party, self._toss = party, toss
        self._secret = BfvSecretKey(toss, party)
        self._peers: dict[str, BfvPublicKey] = {}
        self._packings: dict[tuple[int, int], Packing] = {}
        """Of the rows that were encrypted here, by columns and width."""

    def public_key(self) -> Bytes:
        return self._secret.public_bytes

    def meet(self, peer: str, key: Bytes) -> None:
        self._peers[peer] = BfvPublicKey(self._toss, peer, key)

    def encrypt_rows(self, peer: str, batches: Sequence[Small], width: int) -> Bytes:
        packing = Packing(tuple(len(batch) for batch in batches), batches[0].shape[1], width)
        self._packings[packing.columns, width] = packing
        whole = [ring.reduce(batch.astype(np.int64)) for batch in batches]
        return encrypted_rows(self._secret, peer, packing, whole)

    def open_rows(self, peer: str, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        return BFVRows(self._peers[peer], self.party, encrypted, Packing(tuple(sizes), columns, width))

    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return forward_answer(self._secret, self._packing("forward", columns, width), reply, sizes)

    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return backward_answer(self._secret, self._packing("backward", columns, width), reply, sizes)

    def encrypt(self, peer: str, number: int, values: Ring) -> Bytes:
        return encrypted_values(self._secret, peer, number, values)

    def products(self, peer: str, number: int, encrypted: Bytes, values: Ring, masks: Masks) -> tuple[Bytes, Ring]:
        return products_with(self._peers[peer], self.party, number, encrypted, values)

    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        return decrypted_products(self._secret, reply, shape)

    def _packing(self, purpose: str, columns: int, width: int) -> Packing:
        if (columns, width) not in self._packings:
            raise WireError(purpose, "answers rows that were never encrypted here")
        return self._packings[columns, width]
