"""What all parties agree on before any sum: rows, widths, who opens, fixed point, noise. One fingerprint of it all."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Literal

from veracausa.crypto.moments.account import MomentAccount
from veracausa.crypto.moments.packing import PairPacking
from veracausa.crypto.ring import HALF
from veracausa.errors import InputError

LARGEST_SUM = HALF // 2
"""A sum of products stays below, noise included, so that none can wrap in the field."""
ROWS_A_COLUMN = 10
"""With fewer rows for each column of a pair, sums tell rows."""
MOST_WIDTH = 4096
MOST_BITS = 30
MOST_VALUE = 1 << 26
"""A product of two is exact in a float64."""
NOISE_TAILS = 12
"""Deviations of noise that the field has room for."""
BLOCK_UNIT = 128


@dataclass(frozen=True)
class MomentPlan:
    """One release of the sums over rows of all products of two columns, to one receiver.

    A receiver without columns has width 0. `clip` bounds the norm of each party's part of a row, and `epsilon` needs
    it. `budget` is the ε that all releases of these rows may spend together. Without one there is one release.
    `rows_digest` names the rows for that account, for instance by a digest of the aligned ids.
    """

    parties: tuple[str, ...]
    widths: Mapping[str, int]
    rows: int
    receiver: str
    encryption: Literal["bfv", "none"] = "bfv"
    value_bits: int = 12
    limit: float = 16.0
    clip: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    block_rows: int = 8192
    allow_small_n: bool = False
    budget: float | None = None
    rows_digest: str = ""
    receiver_noise: bool = False
    """Whether the receiver adds noise too. It knows that noise: it helps against readers of what the receiver shows."""

    def check(self) -> None:
        """Refuse what can not be computed exactly, or would tell rows."""
        self._check_parties()
        self._check_numbers()
        self._check_privacy()
        for one, other in self.pairs:
            columns = self.widths[one] + self.widths[other]
            if self.rows < ROWS_A_COLUMN * columns and not self.allow_small_n:
                raise InputError(
                    f"moments: {self.rows} rows for the {columns} columns of {one!r} and {other!r} are so few that "
                    f"sums tell rows; take {ROWS_A_COLUMN * columns} rows, fewer columns, or allow_small_n = true"
                )
        room = LARGEST_SUM - self.noise_room
        if self.rows * self.most**2 > room:
            raise InputError(
                f"moments: sums over {self.rows} rows of products of values up to {self.limit:g} with "
                f"{self.value_bits} fractional bits do not fit the field; take at most "
                f"{most_bits(self.rows, self.limit, room)} bits, or a smaller limit"
            )

    def _check_parties(self) -> None:
        if len(self.parties) < 2 or len(set(self.parties)) != len(self.parties) or set(self.widths) != {*self.parties}:
            raise InputError("moments: two or more parties with different names are needed, each with a width")
        if self.receiver not in self.parties:
            raise InputError(f"moments: the receiver {self.receiver!r} is none of the parties")
        for party, width in self.widths.items():
            least = 0 if party == self.receiver else 1
            if not least <= width <= MOST_WIDTH:
                raise InputError(f"moments: {party!r} has {width} columns; {least} to {MOST_WIDTH} can be summed")
        if self.encryption not in ("bfv", "none"):
            raise InputError(f"moments: encryption = {self.encryption!r}: no such encryption; take 'bfv' or 'none'")
        if self.encryption == "bfv" and find_spec("seal") is None:
            raise InputError('moments: encryption = "bfv": seal is not installed; pip install "veracausa[he]"')

    def _check_numbers(self) -> None:
        if self.rows < 1:
            raise InputError("moments: there are no rows; align the parties' ids first")
        if self.block_rows < BLOCK_UNIT or self.block_rows % BLOCK_UNIT:
            raise InputError(f"moments: block_rows = {self.block_rows}: take a multiple of {BLOCK_UNIT}")
        if not 0 <= self.value_bits <= MOST_BITS:
            raise InputError(f"moments: value_bits = {self.value_bits}: take 0 to {MOST_BITS}")
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise InputError(f"moments: limit = {self.limit}: take a positive number")
        if self.most > MOST_VALUE:
            raise InputError(
                f"moments: values up to {self.limit:g} with {self.value_bits} fractional bits are integers beyond "
                f"{MOST_VALUE}; take fewer bits, or a smaller limit"
            )

    def _check_privacy(self) -> None:
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise InputError(f"moments: clip = {self.clip}: take a positive number")
        if self.epsilon is None:
            return
        if self.clip is None:
            raise InputError("moments: epsilon needs clip, the largest norm of a party's part of a row")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0 and 0 < self.delta < 1):
            raise InputError(f"moments: epsilon = {self.epsilon} at delta = {self.delta}: take ε > 0 and 0 < δ < 1")
        if self.budget is not None and self.budget < self.epsilon:
            raise InputError(f"moments: epsilon = {self.epsilon:g} is more than the agreed budget {self.budget:g}")
        if self.noise_room > LARGEST_SUM // 2:
            raise InputError(
                f"moments: epsilon = {self.epsilon:g} with clip {self.clip:g} and {self.value_bits} fractional bits "
                "asks for noise that the field can not hold; take fewer bits or a smaller clip"
            )

    @cached_property
    def most(self) -> int:
        """The largest magnitude of a value as an integer."""
        return math.ceil(self.limit * 2.0**self.value_bits)

    @property
    def unit(self) -> float:
        """What 1 of an integer sum stands for."""
        return 2.0 ** (-2 * self.value_bits)

    @cached_property
    def account(self) -> MomentAccount | None:
        """What the release costs; None: it is exact."""
        if self.epsilon is None or self.clip is None:
            return None
        columns = [party for party in self.parties if self.widths[party]]
        passive = [party for party in columns if party != self.receiver]
        fixed = self.receiver in columns and not self.receiver_noise
        return MomentAccount.planned(
            self.epsilon, self.delta, self.clip * 2.0**self.value_bits, len(passive if fixed else columns), fixed
        )

    @property
    def noise_room(self) -> int:
        """What noise may add to an entry; an entry has that of two parties."""
        return 0 if self.account is None else math.ceil(NOISE_TAILS * 2 * self.account.deviation)

    def adds_noise(self, party: str) -> bool:
        return self.account is not None and (party != self.receiver or self.receiver_noise)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every two parties with columns as (owner, answerer), in the one order that all keep to.

        The owner encrypts, the answerer multiplies. The order is that of a round-robin tournament, so that pairs
        without a party in common run at the same time.
        """
        seats: list[str | None] = [party for party in self.parties if self.widths[party]]
        if len(seats) % 2:
            seats.append(None)
        found = []
        for _ in range(len(seats) - 1):
            for one, other in zip(seats[: len(seats) // 2], reversed(seats), strict=False):
                if one is not None and other is not None:
                    found.append(self._directed(one, other))
            seats = [seats[0], seats[-1], *seats[1:-1]]
        return tuple(found)

    def _directed(self, one: str, other: str) -> tuple[str, str]:
        """The cheaper direction; of two that cost the same, the one whose owner comes first."""
        first, second = sorted((one, other))
        there, back = self.packing(first, second), self.packing(second, first)
        return (first, second) if there.seconds <= back.seconds else (second, first)

    def packing(self, owner: str, answerer: str) -> PairPacking:
        return PairPacking.best(self.widths[owner], self.widths[answerer], self.rows, self.block_rows)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each party's columns lie in the matrix of all sums."""
        found, start = {}, 0
        for party in self.parties:
            found[party] = slice(start, start + self.widths[party])
            start += self.widths[party]
        return found

    @property
    def width(self) -> int:
        return sum(self.widths.values())

    @property
    def blocks(self) -> tuple[int, ...]:
        """The rows of each block."""
        whole, rest = divmod(self.rows, self.block_rows)
        return (self.block_rows,) * whole + ((rest,) if rest else ())

    def digest(self) -> str:
        """SHA-256 of everything that is agreed."""
        agreed = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "widths"}
        words = json.dumps(["veracausa moments 1", agreed, [self.widths[party] for party in self.parties]])
        return hashlib.sha256(words.encode()).hexdigest()


def most_bits(rows: int, limit: float, room: int = LARGEST_SUM) -> int:
    """The most fractional bits with which sums over so many rows fit, of values up to `limit`."""
    most = math.isqrt(max(room, 0) // max(rows, 1))
    return max(0, min(MOST_BITS, math.floor(math.log2(max(most, 1) / limit))))
