"""The computation on shares: by a party, which sees its shares and masked numbers, and by the dealer.

The dealer runs the same computation on the masks alone, and works out what makes the dealt products right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from veracausa.crypto.ring64 import fixed64 as rounding
from veracausa.crypto.ring64.arithmetic import Bilinear, CubicArithmetic, Masked, total, zeros
from veracausa.crypto.ring64.fixed64 import Stream, Words, word
from veracausa.errors import WireError

Exchange = Callable[[Words], Words]


class DealerTape:
    """What the dealer sent the first party for one phase of the computation, handed out in order."""

    def __init__(self, words: Words) -> None:
        self._left = words

    def take(self, shape: tuple[int, ...]) -> Words:
        count = math.prod(shape)
        if count > len(self._left):
            raise WireError("dealt", "the dealer sent fewer numbers than this phase takes")
        taken, self._left = self._left[:count], self._left[count:]
        return taken.reshape(shape)

    def end(self) -> None:
        if len(self._left):
            raise WireError("dealt", "the dealer sent more numbers than this phase takes")


class SharedArithmetic(CubicArithmetic):
    """`add_up` sends a share to all parties and gives the sum of theirs; `hand_over` opens columns to their owners.

    Of dependent numbers (products of masks) all parties but the first draw their shares; the first one's make the sums
    right, and come from the dealer.
    """

    def __init__(self, first: bool, masks: Stream, roundings: Stream, add_up: Exchange, hand_over: Exchange) -> None:
        self.first = first
        self._masks, self._roundings = masks, roundings
        self._add_up, self._hand_over = add_up, hand_over
        self._dealt: Stream | DealerTape = masks

    def begin(self, words: Words | None = None) -> None:
        """A new phase of the computation; the first party gives what the dealer sent for it."""
        if self.first:
            self.end()
            self._dealt = DealerTape(words if words is not None else np.zeros(0, dtype=np.uint64))

    def end(self) -> None:
        """Hold the dealer to having sent just what was used."""
        if isinstance(self._dealt, DealerTape):
            self._dealt.end()

    def mask(self, *shares: Words) -> list[Masked]:
        masks = [self._masks.take(share.shape) for share in shares]
        opened = self._exchange([share + mask for share, mask in zip(shares, masks, strict=True)])
        return [Masked(*pair) for pair in zip(opened, masks, strict=True)]

    def from_dealer(self, opened: Words) -> Masked:
        """A number that the dealer put in, masked."""
        return Masked(opened, self._masks.take(opened.shape))

    def truncate(self, *numbers: tuple[Words, int]) -> list[Words]:
        masked, parts = [], []
        for number, _ in numbers:
            share = number + self._roundings.take(number.shape)
            masked.append(share + rounding.OFFSET if self.first else share)
            parts.append((self._dealt.take(number.shape), self._dealt.take(number.shape)))
        opened = self._exchange(masked)
        return [
            rounding.truncate_share(c, above, top, bits, self.first)
            for c, (above, top), (_, bits) in zip(opened, parts, numbers, strict=True)
        ]

    def reveal(self, share: Words, bits: int) -> Words:
        self._roundings.take(share.shape)  # the dealer makes the bits below from this draw
        return rounding.floored(self._hand_over(share + self._dealt.take(share.shape)), bits)

    def share(self, number: Masked) -> Words:
        return number.opened - number.mask if self.first else -number.mask

    def product(self, of: Bilinear, a: Masked, b: Masked) -> Words:
        crossed = of(a.opened, b.mask) + of(a.mask, b.opened)
        share = self._dealt.take(crossed.shape) - crossed
        return share + of(a.opened, b.opened) if self.first else share

    def cube(self, a: Masked) -> Words:
        m, shape = a.opened, a.mask.shape
        square, cube = self._dealt.take(shape), self._dealt.take(shape)
        share = word(3) * m * (square - m * a.mask) - cube
        return share + m * m * m if self.first else share

    def times_square(self, a: Masked, b: Masked) -> Words:
        m, n = a.opened, b.opened
        shape = np.broadcast_shapes(m.shape, n.shape)
        square, both, all_ = (self._dealt.take(size) for size in (n.shape, shape, shape))
        share: Words = m * (square - word(2) * n * b.mask) - n * n * a.mask + word(2) * n * both - all_
        return share + m * n * n if self.first else share

    def _exchange(self, shares: list[Words]) -> list[Words]:
        """Opened together, in one message a peer."""
        opened = self._add_up(np.concatenate([share.ravel() for share in shares]))
        ends = np.cumsum([share.size for share in shares])
        parts = np.split(opened, ends[:-1])
        return [part.reshape(share.shape) for part, share in zip(parts, shares, strict=True)]


class Dealer(CubicArithmetic):
    """Knows every mask and must never see what is opened: together they are the numbers. Its shares are zeros, for
    their shape."""

    def __init__(self, masks: Sequence[Stream], roundings: Sequence[Stream]) -> None:
        self._masks, self._roundings = masks, roundings
        self._corrections: list[Words] = []

    def collect(self) -> Words:
        """What the first party needs for the phase since the last call."""
        collected = [part.ravel() for part in self._corrections]
        self._corrections = []
        return np.concatenate(collected) if collected else zeros((0,))

    def mask(self, *shares: Words) -> list[Masked]:
        return [Masked(zeros(share.shape), total(self._masks, share.shape)) for share in shares]

    def deal_input(self, values: Words) -> tuple[Words, Masked]:
        """Put in a number of the dealer's own: what to tell all parties, and the number masked."""
        mask = total(self._masks, values.shape)
        return values + mask, Masked(zeros(values.shape), mask)

    def truncate(self, *numbers: tuple[Words, int]) -> list[Words]:
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
