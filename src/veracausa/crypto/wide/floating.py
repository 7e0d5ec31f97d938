"""The computation in floating point, nothing rounded: the difference is what the words' bits cost. NOT PROTECTED."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.wide.arithmetic import Arithmetic, Bilinear, Masked
from veracausa.crypto.wide.words import Words, signed


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
