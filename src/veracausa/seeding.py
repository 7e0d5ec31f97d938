"""One generator a party, derived from the job's seed; the global random state is left as it was found."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_construction = threading.Lock()


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose: the same for the same words, unrelated for any others."""
    words = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1


def derive_key(seed: int, *purpose: str | int) -> bytes:
    """32 bytes for one purpose: all that a secret seed has to give, where PyTorch's generators take less of it."""
    words = "\x1f".join(["key", str(seed), *map(str, purpose)])
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator of its own for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


@contextmanager
def drawing_from(rng: torch.Generator) -> Iterator[None]:
    """Make PyTorch's initialisers, which know only the default generator, draw from `rng` inside the block.

    The default generator gets its own state back afterwards. One block at a time: parties in threads take turns.
    """
    with _construction:
        before = torch.default_generator.get_state()
        torch.default_generator.set_state(rng.get_state())
        try:
            yield
        finally:
            rng.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(before)
