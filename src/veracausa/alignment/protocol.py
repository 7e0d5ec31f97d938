"""What crosses when ids are aligned, kind by kind. An id, or a hash of one that anybody could make, has no kind."""

from __future__ import annotations

import torch

from veracausa.alignment.curve import POINT
from veracausa.wire.message import Kind, TensorSpec

VERSION = 1
CHUNK = 4096
"""Points or positions in one message; every set crosses in messages of this many, and the rest in its last."""
NONCE = 32

HELLO = Kind("align hello", {"nonce": TensorSpec(torch.uint8, (NONCE,))}, {"settings": str, "count": int})
"""Everybody to everybody, once: what was agreed, how many ids will come, and a part of the session's label."""

MASKED = Kind("align masked", {"points": TensorSpec(torch.uint8, (None, POINT), CHUNK)}, secret_shared=True)
"""A part of a set of ids, shuffled, each under the exponents of everyone it has passed. Of no ids: a sign of life."""

COMMON = Kind("align common", {}, {"count": int})
"""From the active party: how many ids there are in common."""

POSITIONS = Kind("align positions", {"positions": TensorSpec(torch.int64, (None,), CHUNK)}, secret_shared=True)
"""Mode `all`: where the common ids stand in a shuffled set, in the agreed order; on the way back to the set's owner."""

PLACES = Kind("align places", {"places": TensorSpec(torch.int64, (None, 2), CHUNK)}, secret_shared=True)
"""Mode `active`: where an id stands in the set that this party sent, and which place it has in the agreed order."""
