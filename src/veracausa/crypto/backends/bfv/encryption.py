"""The protocol's products under BFV: data encrypted once, multiplied by a peer, masked, flooded and sent back small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes, EncryptedRows, Encryption
from veracausa.crypto.backends.bfv.answers import backward_answer, forward_answer
from veracausa.crypto.backends.bfv.keys import PublicKey, SecretKey, key_fingerprint
from veracausa.crypto.backends.bfv.packing import Packing
from veracausa.crypto.backends.bfv.rows import BFVRows, encrypted_rows
from veracausa.crypto.backends.bfv.values import decrypted_products, encrypted_values, products_with
from veracausa.crypto.ring import Ring, Small
from veracausa.errors import WireError


class BFV(Encryption):
    """One party's BFV key. Semi-honest peers; the encryption of data rests on ring-LWE."""

    name = "bfv"
    protects = True

    def __init__(self) -> None:
        self._secret = SecretKey()
        self._peers: dict[str, PublicKey] = {}
        self._packings: dict[tuple[int, int], Packing] = {}
        """Of the rows that were encrypted here, by columns and width."""

    def public_key(self) -> Bytes:
        return self._secret.public_bytes

    def encrypt_rows(self, batches: Sequence[Small], width: int) -> Bytes:
        packing = Packing(tuple(len(batch) for batch in batches), batches[0].shape[1], width)
        self._packings[packing.columns, width] = packing
        return encrypted_rows(self._secret, packing, [ring.reduce(batch.astype(np.int64)) for batch in batches])

    def open_rows(self, key: Bytes, encrypted: Bytes, sizes: Sequence[int], columns: int, width: int) -> EncryptedRows:
        return BFVRows(self._peer(key), encrypted, Packing(tuple(sizes), columns, width))

    def decrypt_forward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return forward_answer(self._secret, self._packing("forward", columns, width), reply, sizes)

    def decrypt_backward(self, reply: Bytes, sizes: Sequence[int], columns: int, width: int) -> Ring:
        return backward_answer(self._secret, self._packing("backward", columns, width), reply, sizes)

    def encrypt(self, values: Ring) -> Bytes:
        return encrypted_values(self._secret, values)

    def products(self, key: Bytes, encrypted: Bytes, values: Ring, mask: Ring) -> Bytes:
        return products_with(self._peer(key), encrypted, values, mask)

    def decrypt_products(self, reply: Bytes, shape: tuple[int, ...]) -> Ring:
        return decrypted_products(self._secret, reply, shape)

    def _packing(self, purpose: str, columns: int, width: int) -> Packing:
        if (columns, width) not in self._packings:
            raise WireError(purpose, "answers rows that were never encrypted here")
        return self._packings[columns, width]

    def _peer(self, key: Bytes) -> PublicKey:
        """A peer's key, checked once."""
        known = key_fingerprint(key)
        if known not in self._peers:
            self._peers[known] = PublicKey(key)
        return self._peers[known]
