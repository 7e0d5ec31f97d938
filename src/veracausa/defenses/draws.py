"""Where a defense's noise comes from: anew at each exchange, or once for each row."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

# The constants of SplitMix64, as signed integers of 64 bits.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15 - 2**64, 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
_BITS = 23


class Draws(Protocol):
    """Noise for a batch; `shape` begins with the rows."""

    def normal(self, *shape: int) -> Tensor: ...

    def laplace(self, *shape: int) -> Tensor:
        """Laplace(0, 1): standard deviation √2."""


class Fresh:
    """New noise at each call, drawn on `device` from one seed."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.rng = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.rng, device=self.rng.device)

    def laplace(self, *shape: int) -> Tensor:
        first, second = (torch.empty(shape, device=self.rng.device).exponential_(generator=self.rng) for _ in range(2))
        return first.sub_(second)


class ByRow:
    """The same noise whenever the same row comes, whatever rows are beside it: a function of the seed and the row.

    Integers only up to the last step, all rows at once and on their own device.
    """

    def __init__(self, seed: int, x: Tensor) -> None:
        values = (x.detach().flatten(1).float() + 0.0).contiguous().view(torch.int32).long()  # + 0: one kind of zero
        place = torch.arange(1, values.shape[1] + 1, device=x.device)
        mixed = _mixed(values + _mixed(place * _STEP + seed))
        self.keys = _mixed(mixed.sum(1) + seed)

    def normal(self, *shape: int) -> Tensor:
        drawn: Tensor = torch.special.ndtri(self._uniform(shape))
        return drawn

    def laplace(self, *shape: int) -> Tensor:
        centred = self._uniform(shape) - 0.5
        return -centred.sign() * torch.log1p(-2 * centred.abs())

    def _uniform(self, shape: tuple[int, ...]) -> Tensor:
        """In (0, 1), never at its ends: all of 23 bits and a half are exact in float32."""
        assert shape[0] == len(self.keys)
        size = 1
        for length in shape[1:]:
            size *= length
        place = torch.arange(1, size + 1, device=self.keys.device)
        drawn = _mixed(self.keys.unsqueeze(1) + place * _STEP) & (2**_BITS - 1)
        # Two calls must not give the same numbers.
        self.keys = _mixed(self.keys + _STEP)
        uniform: Tensor = (drawn.float() + 0.5) * 2.0**-_BITS
        return uniform.view(shape)


def _mixed(z: Tensor) -> Tensor:
    """SplitMix64's finaliser; products wrap around as they should."""
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    mixed: Tensor = z ^ _shifted(z, 31)
    return mixed


def _shifted(z: Tensor, by: int) -> Tensor:
    """A shift to the right that brings in zeros: PyTorch's own brings in the sign."""
    shifted: Tensor = (z >> by) & (2 ** (64 - by) - 1)
    return shifted
