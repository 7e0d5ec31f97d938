"""The computation in the clear: the integers that the parties' shares add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from veracausa.crypto.wide import rounding
from veracausa.crypto.wide.arithmetic import Arithmetic, Bilinear, Masked, zeros
from veracausa.crypto.wide.words import Words, added
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
