"""Products element by element: what one party encrypted, times another's numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import encode, factor, load, packed_size, unpack
from veracausa.crypto.backends.bfv.envelope import unwrap, wrap
from veracausa.crypto.backends.bfv.keys import Products, PublicKey, SecretKey, cut
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, SENT
from veracausa.crypto.ring import Ring


def encrypted_values(secret: SecretKey, values: Ring) -> Bytes:
    return wrap("values", f"{values.shape}", secret.public, [secret.encrypt(part) for part in _parts(values)])


def products_with(key: PublicKey, encrypted: Bytes, values: Ring, mask: Ring) -> Bytes:
    """Each value of the key's owner times one's own, + mask."""
    size = packed_size(ALL)
    payload = unwrap("values", f"{values.shape}", key.fingerprint, encrypted, _count(values.size) * size)

    def sums() -> Iterator[tuple[Products, Ring]]:
        for part, own, hiding in zip(cut(payload, size), _parts(values), _parts(mask), strict=True):
            ciphertext = load(unpack("values", part, ALL), transformed=True)
            yield ([(ciphertext, factor(encode(own)))] if own.any() else []), hiding

    return wrap("products", f"{values.shape}", key.fingerprint, list(key.replies(sums())))


def decrypted_products(secret: SecretKey, reply: Bytes, shape: tuple[int, ...]) -> Ring:
    count = int(np.prod(shape))
    payload = unwrap("products", f"{shape}", secret.public, reply, _count(count) * packed_size(SENT))
    opened = [secret.decrypt("products", part) for part in cut(payload, packed_size(SENT))]
    return np.concatenate([np.zeros(0, dtype=np.int64), *opened])[:count].reshape(shape)


def _count(values: int) -> int:
    return -(-values // DEGREE)


def _parts(values: Ring) -> list[Ring]:
    flat = values.reshape(-1)
    return [flat[at : at + DEGREE] for at in range(0, flat.size, DEGREE)]
