"""What may cross when all is on shares."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from veracausa.crypto.ring64.fixed64 import SEED_BYTES, Words
from veracausa.discovery.engines.shares.plan import Plan
from veracausa.wire.message import Kind, TensorSpec

_SEED = TensorSpec(torch.uint8, (SEED_BYTES,))
_WORDS = TensorSpec(torch.int64, (None,), max_free=1 << 28)

SEEDS = Kind("seeds", {"masks": _SEED, "roundings": _SEED})
"""From the dealer to a party, once: what its shares of all masks are drawn from."""
COMMON_SEED = Kind("common seed", {"seed": _SEED})
"""Between two parties, once: the validator must not know it."""
DEALT = Kind("dealt", {"words": _WORDS}, secret_shared=True)
"""From the dealer to the first party: what makes the drawn shares add up to products."""
OPENING = Kind("opening", {"words": _WORDS}, secret_shared=True)
"""Between parties: shares of masked numbers."""
SUMS = Kind("sums", {"words": TensorSpec(torch.int64, (None,))}, secret_shared=True)
"""To a target: shares of its attributes' sums of squared residuals."""
LOSSES = Kind("losses", {"losses": TensorSpec(torch.float64, (None,))}, {"empty": float})
"""A party's held-out loss of each candidate, summed over its attributes and rows, and that without any causes."""


def squares(plan: Plan) -> Kind:
    """To the validator: shares of all squared strengths."""
    return Kind("squares", {"words": TensorSpec(torch.int64, (plan.d, plan.d))}, {"loss": float}, secret_shared=True)


def given(plan: Plan) -> Kind:
    """From the validator: factors or graphs, masked."""
    return Kind("given", {"words": TensorSpec(torch.int64, (None, plan.d, plan.d))}, secret_shared=True)


def order(plan: Plan) -> Kind:
    """From the validator, once: the edges that the order of the attributes leaves."""
    return Kind("order", {"allowed": TensorSpec(torch.bool, (plan.d, plan.d))})


def as_tensor(words: Words) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(words).view(np.int64))


def as_words(tensor: Tensor) -> Words:
    return tensor.numpy().view(np.uint64)


def seed_tensor(seed: bytes) -> Tensor:
    return torch.frombuffer(bytearray(seed), dtype=torch.uint8)
