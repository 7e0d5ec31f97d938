"""Two parties that have tossed together and met: an owner of rows, and the peer that multiplies them."""

from __future__ import annotations

import os

import numpy as np

from veracausa.crypto.backends import make_encryption
from veracausa.crypto.backends.base import Encryption
from veracausa.crypto.randomness import Masks, Toss
from veracausa.crypto.ring import Ring

OWNER, PEER = "owner", "peer"


def tossed_pair(name: str) -> tuple[Encryption, Encryption]:
    toss = Toss(os.urandom(32))
    return met(make_encryption(name, toss, OWNER), make_encryption(name, toss, PEER))


def met(owner: Encryption, peer: Encryption) -> tuple[Encryption, Encryption]:
    """Both know the other's key."""
    owner.meet(PEER, peer.public_key())
    peer.meet(OWNER, owner.public_key())
    return owner, peer


class Given(Masks):
    """Draws that were chosen by the test; an encryption that draws its own masks does not look at them."""

    def __init__(self, *drawn: Ring) -> None:
        self.drawn = list(drawn)

    def uniform(self, *shape: int) -> Ring:
        return np.ascontiguousarray(self.drawn.pop(0)).reshape(shape)
