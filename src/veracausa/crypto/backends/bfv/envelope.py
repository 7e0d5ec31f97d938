"""What stands in front of ciphertexts: which parameters, whose key, what for, and a digest against damage.

The digest finds accidents. It is no signature: who can change a message can change its digest too, and to know one's
peer is the transport's work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.backends.bfv.parameters import DEGREE, PRIMES
from veracausa.crypto.ring import P
from veracausa.errors import WireError

TAG = 16
HEAD = 4 * TAG
NO_KEY = bytes(TAG)
"""What keys themselves are under."""


def fingerprint(*parts: bytes | memoryview) -> bytes:
    """Of all parts in a row."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.digest()[:TAG]


PARAMETERS = fingerprint(f"veracausa bfv 2: {DEGREE} {P} {PRIMES}".encode())


def wrap(purpose: str, shape: str, key: bytes, parts: Sequence[bytes]) -> Bytes:
    """A message; `key` is the fingerprint of the key it is under, `shape` what both sides have agreed on."""
    tags = (PARAMETERS, key, fingerprint(f"{purpose} {shape}".encode()), fingerprint(*parts))
    return np.frombuffer(b"".join([*tags, *parts]), dtype=np.uint8)


def measured(purpose: str, data: Bytes, size: int) -> memoryview:
    """All bytes of a message whose payload has the agreed size, before anything else is done with it."""
    if data.dtype != np.uint8 or data.shape != (HEAD + size,):
        raise WireError(purpose, f"{data.nbytes} bytes, but {HEAD + size} were agreed")
    return memoryview(np.ascontiguousarray(data).data)


def unwrap(purpose: str, shape: str, key: bytes, data: Bytes, size: int) -> memoryview:
    """The payload of a message that has exactly the agreed form."""
    whole = measured(purpose, data, size)
    tags = [bytes(whole[at : at + TAG]) for at in range(0, HEAD, TAG)]
    if tags[0] != PARAMETERS:
        raise WireError(purpose, "made with other parameters; all parties need the same version")
    if tags[1] != key:
        raise WireError(purpose, "encrypted under another key")
    if tags[2] != fingerprint(f"{purpose} {shape}".encode()):
        raise WireError(purpose, "made for another purpose, or for other shapes")
    payload = whole[HEAD:]
    if tags[3] != fingerprint(payload):
        raise WireError(purpose, "damaged: it does not match its digest")
    return payload
