"""The owner of a BFV key who looks at more than the masked result: at polynomials and at the noise inside a reply."""

from __future__ import annotations

import math
import os
from unittest import mock

import numpy as np
import seal
from numpy.typing import NDArray

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv import keys
from veracausa.crypto.backends.bfv.ciphertexts import (
    ALL,
    DEGREE,
    PRIMES,
    Residues,
    context,
    load,
    residues_of,
    scheme,
    unpack,
)
from veracausa.crypto.backends.bfv.keys import BfvSecretKey
from veracausa.crypto.randomness import Toss
from veracausa.crypto.ring import P, Ring

Integers = NDArray[np.object_]


def transformed_back(residues: Residues, like: seal.Ciphertext) -> Residues:
    """Coefficients of two polynomials that are given by their transforms, with the primes of a transformed `like`."""
    written = like.to_string()
    made = seal.Ciphertext()
    made.load_bytes(context(), written[: len(written) - residues.nbytes] + residues.tobytes())
    return residues_of(scheme().evaluator.transform_from_ntt(made))


def centred(values: Integers, modulus: int) -> Integers:
    return np.where(values > modulus // 2, values - modulus, values)


class CuriousHolder:
    """Has its secret key in the open, which the product's `BfvSecretKey` never has."""

    def __init__(self) -> None:
        self.toss, seen, read = Toss(os.urandom(32)), [], keys._ternary_of

        def looked_at(secret: seal.SecretKey) -> Residues:
            seen.append(secret.to_string())
            return read(secret)

        with mock.patch.object(keys, "_ternary_of", looked_at):
            self.key = BfvSecretKey(self.toss, "holder")
        levels = len(PRIMES) + 1
        written = np.frombuffer(seen[0][-8 * levels * DEGREE :], dtype=np.uint64)
        self.secret = written.reshape(levels, DEGREE).astype(object)
        """Transformed, by prime."""
        self._count = 0

    def encrypt(self, slots: Ring) -> seal.Ciphertext:
        """As the holder's peer has it in the end."""
        self._count += 1
        first = unpack("own", self.key.encrypt(slots, "own", self._count), ALL)
        return load(first, keys.second_half(self.toss, "holder", "own", self._count), transformed=True)

    def public_key(self) -> Bytes:
        return self.key.public_bytes

    def decrypt(self, first: Residues, second: Residues) -> Ring:
        """A reply."""
        return keys.decode(self.key._decryptor.decrypt(load(first, second, transformed=False)))

    def noise(self, ciphertext: seal.Ciphertext) -> NDArray[np.float64]:
        """What is left of c0 + c1·s when the message, times modulus over P, is taken away."""
        if not ciphertext.is_ntt_form():
            ciphertext = scheme().evaluator.transform_to_ntt(ciphertext)
        c0, c1 = residues_of(ciphertext).astype(object)
        primes = PRIMES[: ciphertext.coeff_modulus_size()]
        modulus = math.prod(primes)
        phase_ntt = np.array([(c0[at] + c1[at] * self.secret[at]) % prime for at, prime in enumerate(primes)])
        phase_rns = transformed_back(np.stack([phase_ntt, phase_ntt]).astype(np.uint64), ciphertext)[0].astype(object)
        phase = np.zeros(DEGREE, dtype=object)
        for prime, limb in zip(primes, phase_rns, strict=True):
            other = modulus // prime
            phase += limb * (pow(other, -1, prime) * other)
        phase = centred(phase % modulus, modulus)
        message = (phase * P * 2 + modulus) // (2 * modulus)
        return ((phase * P - message * modulus) / P).astype(np.float64)


def negacyclic(a: NDArray[np.float64], b: NDArray[np.float64], divide: bool = False) -> NDArray[np.float64]:
    """a·b, or a/b, modulo X^N + 1, in floating point."""
    twist = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    fa, fb = np.fft.fft(a * twist), np.fft.fft(b * twist)
    return (np.fft.ifft(fa / fb if divide else fa * fb) / twist).real
