"""The owner of a BFV key who looks at more than the masked result: at polynomials and at the noise inside a reply."""

from __future__ import annotations

import math

import numpy as np
import seal
from numpy.typing import NDArray

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.ciphertexts import Residues, encode, pack, residues_of, scheme
from veracausa.crypto.backends.bfv.envelope import NO_KEY, wrap
from veracausa.crypto.backends.bfv.keys import ZEROS
from veracausa.crypto.backends.bfv.parameters import DEGREE, PRIMES, context
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
    """Has its secret key in the open, which the product's `SecretKey` never has."""

    def __init__(self) -> None:
        secret = seal.KeyGenerator(context()).secret_key()
        self.encryptor, self.decryptor = seal.Encryptor(context(), secret), seal.Decryptor(context(), secret)
        levels = len(PRIMES) + 1
        written = np.frombuffer(secret.to_string()[-8 * levels * DEGREE :], dtype=np.uint64)
        self.secret = written.reshape(levels, DEGREE).astype(object)
        """Transformed, by prime."""

    def encrypt(self, slots: Ring) -> seal.Ciphertext:
        return scheme().evaluator.transform_to_ntt(self.encryptor.encrypt_symmetric(encode(slots)))

    def public_key(self) -> Bytes:
        zeros = b"".join(pack(residues_of(self.encrypt(np.zeros(0, dtype=np.int64)))) for _ in range(ZEROS))
        return wrap("key", "", NO_KEY, [zeros])

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
