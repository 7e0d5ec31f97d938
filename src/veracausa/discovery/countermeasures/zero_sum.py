"""Pads that add up to zero: a target opens the sum over all sources, and nothing of one source alone.

Every two sources share a secret; what follows from it for a target and an exchange, one adds and the other subtracts.
The sum stays what it was, to the last bit. A target in league with all sources but one takes the pads off again; with
two parties there is one source, and nothing to add up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from veracausa.crypto import ring
from veracausa.crypto.draws import Masks
from veracausa.crypto.ring import BITS, Ring

SECRET = 32
"""Bytes of a shared secret. It is drawn anew at every start: an exchange repeated after a resume has new pads."""


def secret(masks: Masks) -> bytes:
    """For two sources; one draws it and sends it to the other."""
    return masks.uniform(SECRET // 4).astype(np.uint32).tobytes()


def pad(shared: bytes, target: int, exchange: int, shape: Sequence[int]) -> Ring:
    """Uniform elements that follow from the secret (SHAKE-256), the same for both who share it."""
    values = _words(shared, target, exchange, 0, int(np.prod(shape)))
    attempt = 0
    while (beyond := values >= ring.P).any():  # about once in 2⁴¹
        attempt += 1
        values[beyond] = _words(shared, target, exchange, attempt, int(beyond.sum()))
    return values.reshape(shape)


def padded(answer: Ring, me: int, target: int, exchange: int, secrets: dict[int, bytes]) -> Ring:
    """A source's answer with its pads; `secrets` are those it shares with the other sources, by their numbers."""
    for other, shared in secrets.items():
        if other != target:
            drawn = pad(shared, target, exchange, answer.shape)
            answer = ring.add(answer, drawn) if me < other else ring.subtract(answer, drawn)
    return answer


def _words(shared: bytes, target: int, exchange: int, attempt: int, count: int) -> Ring:
    where = np.array([target, exchange, attempt], dtype=np.int64).tobytes()
    stream = hashlib.shake_256(shared + where).digest(8 * count)
    return np.frombuffer(stream, dtype=np.int64) & ((1 << BITS) - 1)
