"""Many products of powers of the same ciphertexts: what a linear map costs under Paillier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz, powmod

from veracausa.crypto.ring import BITS, Ring


def combinations(ciphertexts: Sequence[int], scalars: Ring, modulus: int) -> list[int]:
    """Π c_a^s[a, j] for every column j of the scalars (terms, width).

    Powers of a ciphertext are made once for all columns, and squarings come once for all terms (Straus' method), with
    the window that needs the fewest multiplications.
    """
    width = scalars.shape[1]
    window = min(range(1, 9), key=lambda w: 2**w + width * -(-BITS // w))
    shifts = np.arange(0, BITS, window)
    digits = scalars[..., None] >> shifts & (2**window - 1)
    sums = [[mpz(1)] * len(shifts) for _ in range(width)]
    for c, rows in zip(ciphertexts, digits.tolist(), strict=True):
        powers = [mpz(1), c]
        for _ in range(2, 2**window):
            powers.append(powers[-1] * c % modulus)
        for total, row in zip(sums, rows, strict=True):
            for at, digit in enumerate(row):
                if digit:
                    total[at] = total[at] * powers[digit] % modulus
    return [shifted(total, window, modulus) for total in sums]


def shifted(ciphertexts: Sequence[int], bits: int, modulus: int) -> int:
    """Σ of the plaintexts, each `bits` bits higher than the one before it."""
    shift = mpz(1) << bits
    out = ciphertexts[-1]
    for c in reversed(ciphertexts[:-1]):
        out = powmod(out, shift, modulus) * c % modulus
    return out
