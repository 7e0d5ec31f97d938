"""What can be done with secret numbers. A computation is written once over this interface and run three times: by every
party on its shares, by the dealer on the masks, and, to compare, in the clear.

A *share* is an array of words; sums of shares, and products with public integers, need no help. A product needs both
factors *masked*: v + λ is opened to all parties, λ is uniform and its shares were dealt. Then

    v·w = (v+λ)(w+μ) − (v+λ)·μ − λ·(w+μ) + λμ,

where all but the last are public factors times shares, and a share of λμ is dealt (Beaver 1991; masks that belong to
numbers rather than products: Ben-Efraim, Nielsen and Omri 2019). A masked number serves in any number of products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veracausa.crypto.ring64.words import Words

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
    def cut(self, *numbers: tuple[Words, int]) -> list[Words]:
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

    @abstractmethod
    def cube(self, a: Masked) -> Words:
        """Of each element."""

    @abstractmethod
    def times_square(self, a: Masked, b: Masked) -> Words:
        """a·b², element by element."""

    def cut_and_mask(self, *numbers: tuple[Words, int]) -> list[Masked]:
        return self.mask(*self.cut(*numbers))


def zeros(shape: tuple[int, ...]) -> Words:
    return np.zeros(shape, dtype=np.uint64)
