"""Paillier's keys with g = M + 1, and ciphertexts as bytes; nothing that a peer sent is used before it is checked.

What a peer may hold against this: times of exponentiations depend on their exponents (gmpy2 makes no promise there),
and a modulus that was made dishonestly can not be told from a good one without a proof. None is asked for, so that a
federation across organisations refuses this encryption: it is for parties on one machine.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from functools import cache

import gmpy2
import numpy as np
from gmpy2 import mpz, powmod

from veracausa.crypto.backends.base import Bytes
from veracausa.errors import WireError

TAG = 16
"""Bytes in front of ciphertexts that name their key and their purpose."""
_SMALL_PRIMES = 1 << 16
_TESTS = 40


class PaillierPublicKey:
    """Encrypts what it adds to a ciphertext; mpz integers are annotated as the int they behave like."""

    def __init__(self, modulus: int) -> None:
        self.modulus: int = mpz(modulus)
        self.square: int = self.modulus**2
        self.bits: int = self.modulus.bit_length()
        self._length: int = -(-self.square.bit_length() // 8)

    @classmethod
    def read(cls, data: Bytes, bits: int) -> PaillierPublicKey:
        """A peer's key of the agreed size, refused where it could not be one."""
        if data.dtype != np.uint8 or data.shape != (-(-bits // 8),):
            raise WireError("key", f"{data.size} bytes, but {-(-bits // 8)} are a Paillier modulus of {bits} bits")
        modulus = mpz(int.from_bytes(data.tobytes(), "big"))
        if modulus.bit_length() != bits or modulus % 2 == 0:
            raise WireError("key", f"a Paillier modulus is odd and has exactly {bits} bits")
        if gmpy2.gcd(modulus, _primorial()) != 1 or gmpy2.is_power(modulus) or gmpy2.is_prime(modulus, 1):
            raise WireError("key", "the Paillier modulus has a tiny factor, is a power, or is prime")
        return cls(modulus)

    def write(self) -> Bytes:
        return np.frombuffer(bytearray(int(self.modulus).to_bytes(-(-self.bits // 8), "big")), dtype=np.uint8)

    def size(self, count: int) -> int:
        """Bytes of so many ciphertexts."""
        return TAG + count * self._length

    def write_ciphertexts(self, purpose: str, ciphertexts: Iterable[int]) -> Bytes:
        whole = b"".join(int(c).to_bytes(self._length, "big") for c in ciphertexts)
        return np.frombuffer(bytearray(self._tag(purpose) + whole), dtype=np.uint8)

    def read_ciphertexts(self, purpose: str, data: Bytes, count: int) -> list[int]:
        """So many ciphertexts under this key; anything else is refused."""
        if data.dtype != np.uint8 or data.shape != (self.size(count),):
            raise WireError(purpose, f"{data.size} bytes, but {count} ciphertexts are {self.size(count)}")
        whole = data.tobytes()
        if whole[:TAG] != self._tag(purpose):
            raise WireError(purpose, "encrypted under another key, or for another purpose")
        starts = range(TAG, len(whole), self._length)
        read = [mpz(int.from_bytes(whole[at : at + self._length], "big")) for at in starts]
        for c in read:
            # What shares a factor with M (0 among it) is no ciphertext.
            if c >= self.square or gmpy2.gcd(c, self.modulus) != 1:
                raise WireError(purpose, "not a ciphertext: it is no unit modulo the key's square")
        return read

    def add(self, ciphertext: int, plain: int) -> int:
        """The ciphertext of the sum, re-randomised in full length: it tells nothing of how it came about."""
        r = 1 + secrets.randbelow(int(self.modulus) - 1)
        out: int = ciphertext * (1 + plain * self.modulus) % self.square * powmod(r, self.modulus, self.square)
        return out % self.square

    def _tag(self, purpose: str) -> bytes:
        return hashlib.sha256(f"paillier {purpose} ".encode() + self.write().tobytes()).digest()[:TAG]


class PaillierSecretKey:
    """Two primes. It has no serializer, and its text shows nothing."""

    __slots__ = ("_inverses", "_lift", "_p", "_q", "public")

    def __init__(self, bits: int) -> None:
        half = bits // 2
        p, q = _prime(half), _prime(half)
        while abs(p - q).bit_length() <= half - 100:
            q = _prime(half)
        self._p, self._q = p, q
        self._inverses = gmpy2.invert(-q, p), gmpy2.invert(-p, q)
        self._lift = gmpy2.invert(p, q), gmpy2.invert(p**2, q**2)
        self.public = PaillierPublicKey(p * q)

    def encrypt(self, plain: int) -> int:
        """With the primes at hand a uniform M-th residue costs a quarter: it is one modulo p² and one modulo q²."""
        p, q = self._p, self._q
        at_p = powmod(1 + secrets.randbelow(int(p) - 1), p, p**2)
        at_q = powmod(1 + secrets.randbelow(int(q) - 1), q, q**2)
        residue = at_p + p**2 * ((at_q - at_p) * self._lift[1] % q**2)
        out: int = (1 + plain * self.public.modulus) * residue % self.public.square
        return out

    def decrypt(self, ciphertext: int) -> int:
        """Between 0 and M."""
        p, q = self._p, self._q
        at_p = (powmod(ciphertext, p - 1, p**2) - 1) // p * self._inverses[0] % p
        at_q = (powmod(ciphertext, q - 1, q**2) - 1) // q * self._inverses[1] % q
        out: int = at_p + p * ((at_q - at_p) * self._lift[0] % q)
        return out

    def __reduce__(self) -> str:
        raise TypeError("a secret key has no serializer")


def _prime(bits: int) -> int:
    """Uniform among the primes of so many bits whose two highest bits are set: the product of two has all bits."""
    while True:
        drawn: int = mpz(secrets.randbits(bits) | 3 << (bits - 2) | 1)
        if gmpy2.is_prime(drawn, _TESTS):
            return drawn


@cache
def _primorial() -> int:
    out: int = gmpy2.primorial(_SMALL_PRIMES)
    return out
