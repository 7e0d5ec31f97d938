"""The operations on secret numbers, and their plaintext execution.

A computation is written once over `Arithmetic` and run three times: by every party on its shares, by the dealer on the
masks (both in `shared`), and in the clear, to compare.

A *share* is an array of words. Sums of shares, and products with public integers, need no help. A product needs both
factors *masked*: v + λ is opened to all parties, λ is uniform and its shares were dealt. Then

    v·w = (v+λ)(w+μ) − (v+λ)·μ − λ·(w+μ) + λμ,

where all but the last are public factors times shares, and a share of λμ is dealt (Beaver 1991; masks that belong to
numbers rather than products: Ben-Efraim, Nielsen and Omri 2019). A masked number serves in any number of products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.ring64 import fixed64 as rounding
from veracausa.crypto.ring64 import waves
from veracausa.crypto.ring64.fixed64 import Words, added, signed
from veracausa.errors import RunError

Bilinear = Callable[[Words, Words], Words]


@dataclass(frozen=True)
class Masked:
    """A secret number ready for products: what was opened, and this one's share of the mask."""

    opened: Words
    mask: Words

    def view(self, linear: Callable[[Words], Words]) -> Masked:
        """The same entries in another shape or order."""
        return Masked(linear(self.opened), linear(self.mask))


class Arithmetic(ABC):
    """Every call must come in the same order from all who take part."""

    @abstractmethod
    def mask(self, *shares: Words) -> list[Masked]:
        """Make numbers ready for products; one exchange for all of them."""

    @abstractmethod
    def truncate(self, *numbers: tuple[Words, int]) -> list[Words]:
        """Each number rounded to so many bits fewer; one exchange for all of them."""

    @abstractmethod
    def reveal(self, share: Words, bits: int) -> Words:
        """(targets, …): each opened to its target, rounded to so many bits fewer; here those that are this one's."""

    @abstractmethod
    def share(self, number: Masked) -> Words:
        """A masked number as a share again."""

    @abstractmethod
    def product(self, of: Bilinear, a: Masked, b: Masked) -> Words:
        """A share of any bilinear function of two numbers: element by element, of matrices, inner."""

    def truncate_and_mask(self, *numbers: tuple[Words, int]) -> list[Masked]:
        return self.mask(*self.truncate(*numbers))


class CubicArithmetic(Arithmetic):
    """Arithmetic that has cubes, too."""

    @abstractmethod
    def cube(self, a: Masked) -> Words:
        """Of each element."""

    @abstractmethod
    def times_square(self, a: Masked, b: Masked) -> Words:
        """a·b², element by element."""


class WaveArithmetic(Arithmetic):
    """Arithmetic that has the bounded curve of `waves`, too."""

    @abstractmethod
    def wave(self, number: Words, bits: int, slopes: bool = True) -> list[Masked]:
        """σ(u) of a share of u with so many fractional bits, and σ'(u) if wanted, ready for products."""


def zeros(shape: tuple[int, ...]) -> Words:
    return np.zeros(shape, dtype=np.uint64)


class Source(Protocol):
    """Where words come from: a stream, or what a dealer sent."""

    def take(self, shape: tuple[int, ...]) -> Words: ...


class PlaintextArithmetic(CubicArithmetic):
    """NOT PROTECTED. Rounds as the dealt masks would, and refuses what would wrap unseen on shares."""

    def __init__(self, rounding_streams: Sequence[Source]) -> None:
        self._streams = rounding_streams

    def mask(self, *shares: Words) -> list[Masked]:
        return [Masked(share, zeros(share.shape)) for share in shares]

    def truncate(self, *numbers: tuple[Words, int]) -> list[Words]:
        return [self._rounded(number, total(self._streams, number.shape), bits) for number, bits in numbers]

    def reveal(self, share: Words, bits: int) -> Words:
        return self._rounded(share, total(self._streams, share.shape), bits)

    def share(self, number: Masked) -> Words:
        return number.opened

    def product(self, of: Bilinear, a: Masked, b: Masked) -> Words:
        return of(a.opened, b.opened)

    def cube(self, a: Masked) -> Words:
        return a.opened * a.opened * a.opened

    def times_square(self, a: Masked, b: Masked) -> Words:
        return a.opened * b.opened * b.opened

    @staticmethod
    def _rounded(values: Words, masks: Words, bits: int) -> Words:
        if ((values + rounding.OFFSET) >> np.uint64(63)).any():
            raise RunError("the fit diverged: a number leaves the range of the shares; lower its rate")
        return rounding.rounded(values, masks, bits)


def total(streams: Sequence[Source], shape: tuple[int, ...]) -> Words:
    """What the parties' streams add up to."""
    return added([stream.take(shape) for stream in streams])


class Floating(CubicArithmetic, WaveArithmetic):
    """Numbers keep the scale that their words would have; what is revealed comes back as words."""

    def mask(self, *shares: Words) -> list[Masked]:
        reals = [real(share) for share in shares]
        return [Masked(values, np.zeros_like(values)) for values in reals]

    def truncate(self, *numbers: tuple[Words, int]) -> list[Words]:
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

    def wave(self, number: Words, bits: int, slopes: bool = True) -> list[Masked]:
        u: Any = real(number) / 2.0**bits
        wanted = (waves.curve, waves.slope) if slopes else (waves.curve,)
        found: list[Any] = [curve(u) * 2.0**waves.WAVE_BITS for curve in wanted]
        return self.mask(*found)


def real(words: NDArray[Any]) -> Any:
    """Words as floating-point numbers of the same scale."""
    return signed(words).astype(np.float64) if words.dtype == np.uint64 else words


def whole(values: NDArray[Any]) -> Words:
    """The nearest words; numbers beyond them, and what is no number, at their end."""
    near = np.rint(np.clip(np.nan_to_num(values, nan=np.inf), -(2.0**62), 2.0**62))
    words: Words = near.astype(np.int64).view(np.uint64)
    return words
