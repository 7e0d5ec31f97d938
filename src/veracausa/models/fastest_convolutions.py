"""Convolutions by the fastest algorithm, for what is captured once and replayed many times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms inside the block; what is captured there will be replayed some thousand times."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
