"""An id as a point of Curve25519, and a point under a secret exponent: what masked ids are made of.

An id is hashed to the curve by the suite curve25519_XMD:SHA-512_ELL2_NU_ of RFC 9380; of a point only its u-coordinate
is kept. X25519 multiplies it by a secret number that is a multiple of 8, so that whatever is not of the large prime
order vanishes, and a(bP) = b(aP). Only what a worker process needs is imported here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from veracausa.errors import InputError

P = 2**255 - 19
A = 486662
UNIFORM = 48
"""Bytes that an id is expanded to before they become a point."""
POINT = 32
KEY = 32

_PADDING = hashlib.sha512(bytes(128))  # a whole block of the hash, as the expansion begins with

try:
    from gmpy2 import legendre, mpz
except ImportError:  # the same by Python's own integers, some twenty-five times slower
    mpz = int

    def legendre(value: int, prime: int) -> int:
        return -1 if pow(value, (prime - 1) // 2, prime) == prime - 1 else 1


_P = mpz(P)


class SmallOrder(ValueError):
    """A point that every exponent takes to zero: it hides nothing and matches every other such point."""


def expand(message: bytes, domain: bytes) -> bytes:
    """48 bytes that look random to whoever does not know the message; other domains give unrelated ones."""
    tag = domain + bytes([len(domain)])
    first = _PADDING.copy()
    first.update(message + UNIFORM.to_bytes(2, "big") + b"\0" + tag)
    return hashlib.sha512(first.digest() + b"\1" + tag).digest()[:UNIFORM]


def to_curve(uniform: bytes) -> bytes:
    """The u-coordinate, on the curve, of these 48 bytes: the map Elligator 2 with Z = 2."""
    t = mpz(int.from_bytes(uniform, "big")) % _P
    # 2t² = -1 has no solution, because 2 is no square modulo P and -1 is one: there is always an inverse.
    u = -A * pow(1 + 2 * t * t, -1, _P) % _P
    if legendre(u * (u * u + A * u + 1) % _P, _P) == -1:
        u = (-u - A) % _P
    return int(u).to_bytes(POINT, "little")


def new_key() -> bytes:
    """A secret exponent, from the system's generator."""
    return secrets.token_bytes(KEY)


def masking(key: bytes) -> Callable[[bytes], bytes]:
    """The map that multiplies a point by the secret exponent; `SmallOrder` where nothing would be left."""
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    except ImportError:
        raise InputError('alignment: cryptography is not installed; pip install "veracausa[federation]"') from None
    exchange, point = X25519PrivateKey.from_private_bytes(key).exchange, X25519PublicKey.from_public_bytes

    def mask(value: bytes) -> bytes:
        try:
            return exchange(point(value))
        except ValueError:
            raise SmallOrder("a point of small order") from None

    return mask
