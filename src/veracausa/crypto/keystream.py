"""Words that nobody without the key can tell from random ones: ChaCha20, the same bits on every machine."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

KEY = 32
"""Bytes."""


class Keystream:
    """Every word is drawn once; there is no way back. A key serves one stream."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        self._stream: CipherContext = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> NDArray[np.uint32]:
        return np.frombuffer(self._stream.update(bytes(4 * count)), dtype="<u4")


def subkey(key: bytes, *purpose: str | int | memoryview) -> bytes:
    """A key for one purpose, by keyed BLAKE2b: from it nothing follows about `key` or the keys of other purposes."""
    digest = hashlib.blake2b(key=key, digest_size=KEY)
    for word in purpose:
        part = word if isinstance(word, memoryview) else str(word).encode()
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
