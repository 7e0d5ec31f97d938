"""What crosses in split training, kind by kind. Labels and raw features have no kind: they cannot be sent."""

from __future__ import annotations

import torch

from veracausa.wire.message import Kind, TensorSpec

MAX_ROWS = 1 << 26

HELLO = Kind(
    "hello",
    {
        "shape": TensorSpec(torch.int64, (None,), max_free=4),
        "expected": TensorSpec(torch.int64, (None,), max_free=4, optional=True),
        "present": TensorSpec(torch.bool, (None,), MAX_ROWS),
    },
    {"train": int, "validation": int, "test": int},
)
"""Passive to active, once: the shape of its payload, how many rows it knows, and which training ids it really holds.

`expected` is the shape that the model's own bottom gives, said only where a defense with layers sends another.
The last is membership: with partial overlap the active party learns who is missing at whom.
"""

READY = Kind("ready", {}, {"share": float, "done": int})
"""Passive to active, after HELLO, numbered from 0: how much of what its defense prepares is done, and whether all is.

The active party answers each round of them with the least share and whether everybody is done; then requests begin.
"""

REQUEST = Kind(
    "request",
    {"ids": TensorSpec(torch.int64, (None,), MAX_ROWS)},
    {"purpose": str, "split": str, "at": int, "of": int},
)
"""Active to passive: positions to answer for.

Purposes: train (step `at` `of` so many), infer, epoch (one has ended; nothing is sent back), save (a checkpoint, now),
done.
"""


def representation(shape: tuple[int, ...], dtype: torch.dtype) -> Kind:
    """Passive to active: the payload of the requested rows."""
    return Kind("representation", {"payload": TensorSpec(dtype, (None, *shape), MAX_ROWS)})


def gradient(shape: tuple[int, ...], dtype: torch.dtype) -> Kind:
    """Active to passive: the loss's gradient with respect to the payload, and over how many rows the loss was taken.

    No rows, no update: a step on a gradient of zeros would still move weights by momentum and decay.
    """
    return Kind("gradient", {"gradient": TensorSpec(dtype, (None, *shape), MAX_ROWS)}, {"rows": int})
