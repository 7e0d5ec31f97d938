"""Products element by element: what one party encrypted, times another's numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.answers import opened_replies, replies_size
from veracausa.crypto.backends.bfv.ciphertexts import encode, factor, packed_size, unpack
from veracausa.crypto.backends.bfv.envelope import unwrap, wrap
from veracausa.crypto.backends.bfv.keys import Products, PublicKey, SecretKey, cut
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE
from veracausa.crypto.ring import Ring


def encrypted_values(secret: SecretKey, peer: str, number: int, values: Ring) -> Bytes:
    """For one peer; `number` says which, and none is used twice."""
    parts = [secret.encrypt(part, "values", peer, number, at) for at, part in enumerate(_parts(values))]
    return wrap("values", _shape(peer, number, values.shape), secret.public, parts)


def products_with(key: PublicKey, peer: str, number: int, encrypted: Bytes, values: Ring) -> tuple[Bytes, Ring]:
    """Each value that the key's owner encrypted for `peer` times one's own: the reply, and one's own share."""
    size, shape = packed_size(ALL), _shape(peer, number, values.shape)
    payload = unwrap("values", shape, key.fingerprint, encrypted, _count(values.size) * size)

    def sums() -> Iterator[Products]:
        for at, (part, own) in enumerate(zip(cut(payload, size), _parts(values), strict=True)):
            ciphertext = key.ciphertext(unpack("values", part, ALL), "values", peer, number, at)
            yield [(ciphertext, factor(encode(own)))] if own.any() else []

    parts, shares = key.replies(sums())
    return wrap("products", f"{values.shape}", key.fingerprint, parts), _whole(shares, values.shape)


def decrypted_products(secret: SecretKey, reply: Bytes, shape: tuple[int, ...]) -> Ring:
    count = _count(int(np.prod(shape)))
    payload = unwrap("products", f"{shape}", secret.public, reply, replies_size(count))
    return _whole(list(opened_replies("products", secret, payload)), shape)


def _shape(peer: str, number: int, shape: tuple[int, ...]) -> str:
    return f"{peer} {number} {shape}"


def _whole(slots: list[Ring], shape: tuple[int, ...]) -> Ring:
    return np.concatenate([np.zeros(0, dtype=np.int64), *slots])[: int(np.prod(shape))].reshape(shape)


def _count(values: int) -> int:
    return -(-values // DEGREE)


def _parts(values: Ring) -> list[Ring]:
    flat = values.reshape(-1)
    return [flat[at : at + DEGREE] for at in range(0, flat.size, DEGREE)]
