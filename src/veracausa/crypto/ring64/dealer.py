"""The dealer's part: it runs the computation on the masks alone, and works out what makes the dealt products right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veracausa.crypto.ring64 import truncation as rounding
from veracausa.crypto.ring64.arithmetic import Arithmetic, Bilinear, Masked, zeros
from veracausa.crypto.ring64.plaintext import total
from veracausa.crypto.ring64.words import Stream, Words


class Dealer(Arithmetic):
    """Knows every mask and must never see what is opened: together they are the numbers. Its shares are zeros, for
    their shape."""

    def __init__(self, masks: Sequence[Stream], roundings: Sequence[Stream]) -> None:
        self._masks, self._roundings = masks, roundings
        self._corrections: list[Words] = []

    def collect(self) -> Words:
        """What the first party needs for the stretch since the last call."""
        collected = [part.ravel() for part in self._corrections]
        self._corrections = []
        return np.concatenate(collected) if collected else zeros((0,))

    def mask(self, *shares: Words) -> list[Masked]:
        return [Masked(zeros(share.shape), total(self._masks, share.shape)) for share in shares]

    def give(self, values: Words) -> tuple[Words, Masked]:
        """Put in a number of the dealer's own: what to tell all parties, and the number masked."""
        mask = total(self._masks, values.shape)
        return values + mask, Masked(zeros(values.shape), mask)

    def cut(self, *numbers: tuple[Words, int]) -> list[Words]:
        for number, bits in numbers:
            for part in rounding.mask_parts(total(self._roundings, number.shape), bits):
                self._deal(part)
        return [zeros(number.shape) for number, _ in numbers]

    def reveal(self, share: Words, bits: int) -> Words:
        self._deal(rounding.low_bits(total(self._roundings, share.shape), bits))
        return zeros(share.shape)

    def share(self, number: Masked) -> Words:
        return zeros(number.mask.shape)

    def product(self, of: Bilinear, a: Masked, b: Masked) -> Words:
        return self._deal(of(a.mask, b.mask))

    def cube(self, a: Masked) -> Words:
        square = a.mask * a.mask
        self._deal(square)
        return self._deal(square * a.mask)

    def times_square(self, a: Masked, b: Masked) -> Words:
        square, both = b.mask * b.mask, a.mask * b.mask
        self._deal(square)
        self._deal(both)
        return self._deal(both * b.mask)

    def _deal(self, value: Words) -> Words:
        others = self._masks[1:]
        self._corrections.append(value - total(others, value.shape) if others else value)
        return zeros(value.shape)
