"""Where rows and columns lie in the coefficients of polynomials, so that one product is a row of inner products.

A ciphertext holds `group_rows` rows of up to `group_columns` columns: column i, reversed, at the coefficients from
i·group_rows. A factor holds as many rows of one column of the other party. The coefficient at the end of each stretch
of their product is the inner product of two columns over these rows. Sums over rows are sums of ciphertexts. Nothing
is rotated.

Every other coefficient of the product is a sum over fewer rows, so a reply hides all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto.ring import P, Ring, Small

DEGREE = 8192
"""Coefficients of a polynomial, as in `backends.bfv`, which needs its library to be imported."""
PACKET = 64
"""Ciphertexts of a message at most."""
PACKET_PRODUCTS = 1 << 14
"""Products that a message asks for, about: some seconds of a core, so that both ends hear of each other in time."""
MOST_REPLIES = 1024
"""Of a pair, unless one party's columns alone are more: they are summed up in memory."""
PANEL = 128
"""Replies that one task sums up."""
QUERY_BYTES, REPLY_BYTES = 20 * DEGREE, 16 * DEGREE
INTEGER = 4
"""Bytes of a value that the twin sends."""

_ENCRYPT, _TRANSFORM, _PRODUCT, _REPLY = 3e-3, 0.3e-3, 0.2e-3, 5e-3
"""Seconds of a core, about."""
_LINE = 12.5e6
"""Bytes a second between organisations, about."""


@dataclass(frozen=True)
class PairPacking:
    """Of one pair: the owner's columns, the answerer's, and how many of both lie together."""

    columns: int
    factors: int
    rows: int
    block_rows: int
    groups: int
    """Ciphertexts that share the rows, each with other columns."""

    @classmethod
    def best(cls, columns: int, factors: int, rows: int, block_rows: int) -> PairPacking:
        """The one that costs least. More columns a ciphertext make fewer replies, and more factors to transform."""
        return _best(columns, factors, rows, block_rows)

    @property
    def group_columns(self) -> int:
        return -(-self.columns // self.groups)

    @property
    def group_rows(self) -> int:
        return min(self.block_rows, DEGREE // self.group_columns)

    @property
    def packet_rows(self) -> int:
        """Rows of a message: as many as a block has, or fewer if that were too many ciphertexts or products."""
        ciphertexts = min(PACKET, PACKET_PRODUCTS // self.factors)
        return min(self.block_rows, self.group_rows * max(1, ciphertexts // self.groups))

    @property
    def replies(self) -> int:
        return self.groups * self.factors

    @property
    def panel(self) -> int:
        """Columns of the answerer that one task takes."""
        return max(1, PANEL // self.groups)

    def packets(self) -> Iterator[tuple[int, int, int]]:
        """Block, and first and last row of each message within it."""
        for block, start in enumerate(range(0, self.rows, self.block_rows)):
            size = min(self.block_rows, self.rows - start)
            for first in range(0, size, self.packet_rows):
                yield block, first, min(size, first + self.packet_rows)

    @property
    def packet_count(self) -> int:
        whole, rest = divmod(self.rows, self.block_rows)
        return whole * -(-self.block_rows // self.packet_rows) + -(-rest // self.packet_rows)

    def ciphertexts(self, rows: int) -> int:
        """Of a message with so many rows."""
        return self.groups * -(-rows // self.group_rows)

    @property
    def seconds(self) -> float:
        """Of a core and of the line, about: what directions and packings are compared by."""
        whole, rest = divmod(self.rows, self.block_rows)
        stretches = whole * -(-self.block_rows // self.group_rows) + -(-rest // self.group_rows)
        ciphertexts = stretches * self.groups
        work = ciphertexts * _ENCRYPT + stretches * self.factors * _TRANSFORM
        work += ciphertexts * self.factors * _PRODUCT + self.replies * _REPLY
        return work + (ciphertexts * QUERY_BYTES + self.replies * REPLY_BYTES) / _LINE

    def polynomials(self, rows: Small) -> Iterator[NDArray[np.uint64]]:
        """The coefficients of each ciphertext of these rows: stretch by stretch, columns by columns."""
        length, width = self.group_rows, self.group_columns
        for start in range(0, len(rows), length):
            stretch = np.zeros((length, self.groups * width), dtype=np.int64)
            met = rows[start : start + length]
            stretch[: len(met), : self.columns] = met
            for first in range(0, self.groups * width, width):
                reversed_columns = stretch[::-1, first : first + width].T
                out = np.zeros(DEGREE, dtype=np.uint64)
                out[: width * length] = np.mod(reversed_columns, P).reshape(-1)
                yield out

    def factor(self, column: Small) -> NDArray[np.uint64] | None:
        """The coefficients of one stretch of one column; None where all are 0."""
        if not column.any():
            return None
        out = np.zeros(DEGREE, dtype=np.uint64)
        out[: len(column)] = np.mod(column.astype(np.int64), P)
        return out

    def results(self, coefficients: Ring, group: int) -> Ring:
        """The inner products in a product's coefficients: of one factor with the columns of one group."""
        width = min(self.group_columns, self.columns - group * self.group_columns)
        return coefficients[self.group_rows - 1 :: self.group_rows][:width]


@lru_cache(maxsize=256)
def _best(columns: int, factors: int, rows: int, block_rows: int) -> PairPacking:
    most = max(1, min(columns, MOST_REPLIES // max(factors, 1)))
    found = [PairPacking(columns, factors, rows, block_rows, groups) for groups in range(1, most + 1)]
    return min(found, key=lambda packing: (packing.seconds, packing.groups))
