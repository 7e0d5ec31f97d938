"""Where a defense's noise comes from: anew at each exchange, or once for each row, and always from a secret key.

Words come from ChaCha20 on the CPU, whatever device the payload is on: who sees noise, and even knows much of it, can
not go on to the rest of it. What is made of the words is floating point of 32 bits. Its lowest bits are not those of
an ideal normal number (Mironov, 2012), which matters to a guarantee of differential privacy. None is claimed here.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.crypto.keystream import Keystream, subkey


class Draws(Protocol):
    """Noise for a batch; `shape` begins with the rows."""

    def normal(self, *shape: int) -> Tensor: ...

    def laplace(self, *shape: int) -> Tensor:
        """Laplace(0, 1): standard deviation √2."""


class Fresh:
    """New noise at each call, from one key."""

    def __init__(self, key: bytes, device: torch.device) -> None:
        self.device = device
        self._stream = Keystream(key)

    def normal(self, *shape: int) -> Tensor:
        count = math.prod(shape)
        return _normal(self._stream.words(_even(count))[None], self.device)[:, :count].reshape(shape)

    def laplace(self, *shape: int) -> Tensor:
        return _laplace(self._stream.words(math.prod(shape)), self.device).reshape(shape)


class ByRow:
    """The same noise whenever the same row comes, whatever rows are beside it: a function of the key and the row."""

    def __init__(self, key: bytes, x: Tensor) -> None:
        self.device = x.device
        values = (x.detach().flatten(1).float() + 0.0).cpu().contiguous().numpy()  # + 0: one kind of zero
        self._streams = [Keystream(subkey(key, memoryview(row).cast("B"))) for row in values]

    def normal(self, *shape: int) -> Tensor:
        size = math.prod(shape[1:])
        return _normal(self._words(shape[0], _even(size)), self.device)[:, :size].reshape(shape)

    def laplace(self, *shape: int) -> Tensor:
        return _laplace(self._words(shape[0], math.prod(shape[1:])), self.device).reshape(shape)

    def _words(self, rows: int, size: int) -> NDArray[np.uint32]:
        assert rows == len(self._streams)
        return np.stack([stream.words(size) for stream in self._streams])


def _even(count: int) -> int:
    return count + count % 2


def _normal(words: NDArray[np.uint32], device: torch.device) -> Tensor:
    """Along the last dimension, by Box and Muller: two words give two numbers, and none is beyond 6.8."""
    # Small words are exact in 32-bit floating point, and large ones become 1 at most: there is no logarithm of 0.
    first, second = torch.from_numpy(words.astype(np.float32)).to(device).chunk(2, -1)
    radius = first.add(0.5).mul_(2.0**-32).log_().mul_(-2).clamp_min_(0).sqrt_()
    angle = second * (2 * math.pi * 2.0**-32)
    return torch.cat([radius * angle.cos(), radius * angle.sin_()], -1)


def _laplace(words: NDArray[np.uint32], device: torch.device) -> Tensor:
    """An exponential number of 31 bits of a word, with the last bit as its sign; none is beyond 22.2."""
    magnitude = (words >> 1).astype(np.float32) + np.float32(0.5)
    signed = torch.from_numpy(np.where(words & 1, magnitude, -magnitude)).to(device)
    return signed.abs().mul_(2.0**-31).log_() * signed.sign()
