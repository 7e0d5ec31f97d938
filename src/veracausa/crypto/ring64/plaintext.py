"""The computation in the clear: the integers that the parties' shares add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.ring64 import truncation as rounding
from veracausa.crypto.ring64.arithmetic import Arithmetic, Bilinear, Masked, zeros
from veracausa.crypto.ring64.words import Words, added, signed
from veracausa.errors import RunError


class Source(Protocol):
    """Where words come from: a stream, or what a dealer sent."""

    def take(self, shape: tuple[int, ...]) -> Words: ...


class Plain(Arithmetic):
    """NOT PROTECTED. Rounds as the dealt masks would, and refuses what would wrap unseen on shares."""

    def __init__(self, rounding_streams: Sequence[Source]) -> None:
        self._streams = rounding_streams

    def mask(self, *shares: Words) -> list[Masked]:
        return [Masked(share, zeros(share.shape)) for share in shares]

    def cut(self, *numbers: tuple[Words, int]) -> list[Words]:
        return [self._round(number, bits) for number, bits in numbers]

    def reveal(self, share: Words, bits: int) -> Words:
        return self._round(share, bits)

    def share(self, number: Masked) -> Words:
        return number.opened

    def product(self, of: Bilinear, a: Masked, b: Masked) -> Words:
        return of(a.opened, b.opened)

    def cube(self, a: Masked) -> Words:
        return a.opened * a.opened * a.opened

    def times_square(self, a: Masked, b: Masked) -> Words:
        return a.opened * b.opened * b.opened

    def _round(self, values: Words, bits: int) -> Words:
        if ((values + rounding.OFFSET) >> np.uint64(63)).any():
            raise RunError("the fit diverged: a number leaves the range of the shares; lower its rate")
        return rounding.rounded(values, total(self._streams, values.shape), bits)


def total(streams: Sequence[Source], shape: tuple[int, ...]) -> Words:
    """What the parties' streams add up to."""
    return added([stream.take(shape) for stream in streams])


class Floating(Arithmetic):
    """Numbers keep the scale that their words would have; what is revealed comes back as words."""

    def mask(self, *shares: Words) -> list[Masked]:
        reals = [real(share) for share in shares]
        return [Masked(values, np.zeros_like(values)) for values in reals]

    def cut(self, *numbers: tuple[Words, int]) -> list[Words]:
        cut: list[Any] = [number / 2.0**bits for number, bits in numbers]
        return cut

    def reveal(self, share: Words, bits: int) -> Words:
        return whole(share / 2.0**bits)

    def share(self, number: Masked) -> Words:
        return number.opened

    def product(self, of: Bilinear, a: Masked, b: Masked) -> Words:
        return of(a.opened, b.opened)

    def cube(self, a: Masked) -> Words:
        return a.opened * a.opened * a.opened

    def times_square(self, a: Masked, b: Masked) -> Words:
        return a.opened * b.opened * b.opened


def real(words: NDArray[Any]) -> Any:
    """Words as floating-point numbers of the same scale."""
    return signed(words).astype(np.float64) if words.dtype == np.uint64 else words


def whole(values: NDArray[Any]) -> Words:
    """The nearest words; numbers beyond them, and what is no number, at their end."""
    near = np.rint(np.clip(np.nan_to_num(values, nan=np.inf), -(2.0**62), 2.0**62))
    words: Words = near.astype(np.int64).view(np.uint64)
    return words
