"""A party's secret key, which can not be written down, and what its peers get instead.

A public key is a few encryptions of 0. A peer multiplies each by one fresh polynomial u of −1, 0 and 1 and adds fresh
noise: to whoever does not know u that is a fresh encryption of 0 (ring-LWE with the secret u, some samples a secret).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import seal

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import (
    decode,
    encode,
    factor,
    load,
    pack,
    packed_size,
    plaintext,
    residues_of,
    scheme,
    unpack,
)
from veracausa.crypto.backends.bfv.envelope import NO_KEY, fingerprint, measured, unwrap, wrap
from veracausa.crypto.backends.bfv.noise import fresh_noise, ternary
from veracausa.crypto.backends.bfv.parameters import ALL, DEGREE, SENT, context
from veracausa.crypto.ring import Ring
from veracausa.errors import WireError

Products = Sequence[tuple[seal.Ciphertext, seal.Plaintext]]
"""Of transformed ciphertexts and factors, to be summed up."""

ZEROS = 4
"""Encryptions of 0 in a public key: replies that share one u."""


class SecretKey:
    """Encrypts one's own numbers and opens replies. It has no serializer, and its text shows nothing."""

    __slots__ = ("_decryptor", "_encryptor", "public", "public_bytes")

    def __init__(self) -> None:
        secret = seal.KeyGenerator(context()).secret_key()
        self._encryptor = seal.Encryptor(context(), secret)
        self._decryptor = seal.Decryptor(context(), secret)
        zeros = b"".join(self._encrypted(seal.Plaintext("0")) for _ in range(ZEROS))
        self.public = fingerprint(zeros)
        self.public_bytes = wrap("key", "", NO_KEY, [zeros])

    def encrypt(self, slots: Ring) -> bytes:
        """A transformed ciphertext of all primes."""
        return self._encrypted(encode(slots))

    def _encrypted(self, plain: seal.Plaintext) -> bytes:
        made = self._encryptor.encrypt_symmetric(plain)
        scheme().evaluator.transform_to_ntt_inplace(made)
        return pack(residues_of(made))

    def decrypt(self, purpose: str, reply: memoryview) -> Ring:
        """The slots of a reply."""
        return decode(self._decryptor.decrypt(load(unpack(purpose, reply, SENT), transformed=False)))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key has no serializer")


class PublicKey:
    """A peer's key: adds masks to products under it, and hides how they came about."""

    def __init__(self, data: Bytes) -> None:
        payload = unwrap("key", "", NO_KEY, data, ZEROS * packed_size(ALL))
        self.fingerprint = fingerprint(payload)
        residues = [unpack("key", part, ALL) for part in cut(payload, packed_size(ALL))]
        for prime in range(ALL):
            # Uniform numbers hardly ever meet. A key whose second halves are few numbers would hide nothing.
            if np.unique([zero[1, prime] for zero in residues]).size < ZEROS * DEGREE * 0.95:
                raise WireError("key", "degenerate: its numbers are not spread as a key's are")
        self._zeros = [load(zero, transformed=True) for zero in residues]

    def replies(self, sums: Iterator[tuple[Products, Ring]]) -> Iterator[bytes]:
        """For each sum of products and its mask by slots, the ciphertext for the key's owner."""
        hider: seal.Plaintext | None = None
        for number, (products, mask) in enumerate(sums):
            if number % ZEROS == 0:
                hider = factor(plaintext(ternary()))
            total = self.hidden(number % ZEROS, hider, products)
            yield pack(residues_of(flooded(total, mask)))

    def hidden(self, zero: int, hider: seal.Plaintext, products: Products) -> seal.Ciphertext:
        """A sum of products and an encryption of 0, still transformed."""
        evaluator = scheme().evaluator
        total = evaluator.multiply_plain(self._zeros[zero], hider)
        for ciphertext, plain in products:
            evaluator.add_inplace(total, evaluator.multiply_plain(ciphertext, plain))
        return total


def flooded(total: seal.Ciphertext, mask: Ring) -> seal.Ciphertext:
    """What is sent: with fresh noise, mask and flood, and only as many primes as it takes."""
    evaluator = scheme().evaluator
    noise, flood = fresh_noise()
    evaluator.transform_from_ntt_inplace(total)
    evaluator.add_inplace(total, load(noise, transformed=False))
    evaluator.mod_switch_to_next_inplace(total)
    # The mask goes in before the flood, which covers the rounding of its scaling too.
    evaluator.add_plain_inplace(total, encode(mask))
    evaluator.add_inplace(total, load(flood, transformed=False))
    evaluator.mod_switch_to_next_inplace(total)
    return total


def cut(payload: memoryview, size: int) -> list[memoryview]:
    return [payload[at : at + size] for at in range(0, len(payload), size)]


def key_fingerprint(key: Bytes) -> str:
    """SHA-256 of a public key, for two people to compare over another channel."""
    return hashlib.sha256(measured("key", key, ZEROS * packed_size(ALL))).hexdigest()
