"""Masked points as they arrive: what no honest party sends is found before it is used."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from veracausa.alignment.curve import POINT, P

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
