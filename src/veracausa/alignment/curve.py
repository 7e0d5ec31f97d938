"""An id as a point of Curve25519, and a point under a secret exponent: what masked ids are made of.

An id is hashed to the curve by the suite curve25519_XMD:SHA-512_ELL2_NU_ of RFC 9380; of a point only its u-coordinate
is kept. X25519 multiplies it by a secret number that is a multiple of 8, so that whatever is not of the large prime
order vanishes, and a(bP) = b(aP). Only what a worker process needs is imported here.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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


Points = NDArray[np.uint8]
"""(n, 32): u-coordinates, little-endian."""

SMALL_ORDER = tuple(
    value.to_bytes(POINT, "little")
    for value in (
        0,
        1,
        P - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
)
"""Of the curve and its twist, the points whose order divides 8: every exponent of X25519 takes them to zero."""

_SMALL = np.frombuffer(b"".join(SMALL_ORDER), dtype=np.uint8).reshape(-1, POINT)
_ONES = np.uint64(2**64 - 1)
_TOP = np.uint64(2**63 - 1)
_LOW = np.uint64(2**64 - 19)


def fault(points: Points) -> str | None:
    """What is wrong with points that a peer sent, in words; None where nothing is."""
    words = points.view("<u8")
    top = words[:, 3]
    beyond = (top == _TOP) & (words[:, 2] == _ONES) & (words[:, 1] == _ONES) & (words[:, 0] >= _LOW)
    if bool((beyond | (top > _TOP)).any()):
        return "holds a point that is not written in the one canonical way"
    if any(bool((points == small).all(axis=1).any()) for small in _SMALL):
        return "holds a point of small order"
    return None


def tags(points: Points) -> list[bytes]:
    """Every point as bytes, which can be compared and sorted."""
    whole = points.tobytes()
    return [whole[at : at + POINT] for at in range(0, len(whole), POINT)]


def shuffle(count: int) -> NDArray[np.int64]:
    """A secret order of `count` things, from the system's generator."""
    # Two keys of 64 bits alike keep their order: with a million rows, once in some thirty million shuffles.
    return np.argsort(np.frombuffer(os.urandom(8 * count), dtype=np.uint64), kind="stable").astype(np.int64)
