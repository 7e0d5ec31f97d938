"""How parties begin on secrets together: a coin toss, everybody's public key, and one plan that all have.

The toss gives what no party may choose. Public keys are made by it. Then all compare one fingerprint of the plan, the
toss and all keys, before anything is encrypted. After a restart all three are done anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.randomness import NONCE, Toss, TossedNonce
from veracausa.errors import WireError
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, TensorSpec

KEY_BYTES = 1 << 23

TOSS = Kind("toss", {"commitment": TensorSpec(torch.uint8, (NONCE,))})
"""A party's commitment to its nonce."""
TOSS_SHOWN = Kind("toss shown", {"nonce": TensorSpec(torch.uint8, (NONCE,))})
KEY = Kind("key", {"key": TensorSpec(torch.uint8, (None,), max_free=KEY_BYTES)})
AGREED = Kind("agreed", {"fingerprint": TensorSpec(torch.uint8, (32,))})
"""Of the plan and of everybody's keys."""
AGREEMENT = (TOSS, TOSS_SHOWN, KEY, AGREED)


def toss_together(link: Link, peers: Sequence[str], step: int, life: int) -> Toss:
    """The toss of all; `life` counts the starts of a run, and is the same for all."""
    own = TossedNonce(link.me, life)
    for peer in peers:
        link.send(peer, TOSS, step, {"commitment": word(own.commitment())})
    committed = {peer: link.receive(peer, TOSS, step).tensors["commitment"] for peer in peers}
    for peer in peers:  # only now that nobody can choose by it
        link.send(peer, TOSS_SHOWN, step, {"nonce": word(own.nonce)})
    shown = {peer: link.receive(peer, TOSS_SHOWN, step).tensors["nonce"] for peer in peers}
    return own.joined(
        {peer: part.numpy().tobytes() for peer, part in committed.items()},
        {peer: part.numpy().tobytes() for peer, part in shown.items()},
    )


def exchange_keys(link: Link, peers: Sequence[str], step: int, own: Bytes) -> dict[str, Bytes]:
    """Every peer's public key, not yet read."""
    for peer in peers:
        link.send(peer, KEY, step, {"key": tensor(own)})
    return {peer: link.receive(peer, KEY, step).tensors["key"].numpy() for peer in peers}


def agree(
    link: Link, peers: Sequence[str], step: int, said: Sequence[Any], keys: Mapping[str, Bytes], used: Collection[str]
) -> list[str]:
    """The fingerprints of all keys, once every peer has said the same words about the same keys.

    `said` is what must be equal, the toss among it. A key that is among `used` is refused: a secret key is never
    written down, so after a resume every party has a new one.
    """
    prints = {party: hashlib.sha256(keys[party].tobytes()).hexdigest() for party in keys}
    for party, fingerprint in prints.items():
        if keys[party].size and fingerprint in used:
            raise WireError("key.key", f"is one that was used before (of {party!r}); a resumed run draws new ones")
    words = json.dumps([*said, prints], sort_keys=True)
    whole = np.frombuffer(hashlib.sha256(words.encode()).digest(), dtype=np.uint8)
    for peer in peers:
        link.send(peer, AGREED, step, {"fingerprint": tensor(whole)})
    for peer in peers:
        theirs = link.receive(peer, AGREED, step).tensors["fingerprint"].numpy()
        if not np.array_equal(whole, theirs):
            raise WireError("agreed.fingerprint", f"{peer!r} has another plan, or other keys than this party")
    return list(prints.values())


def word(value: bytes) -> Tensor:
    """Bytes of a fixed length."""
    return torch.tensor(list(value), dtype=torch.uint8)


def tensor(array: NDArray[Any]) -> Tensor:
    whole = np.ascontiguousarray(array)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy())  # torch has no read-only tensors
