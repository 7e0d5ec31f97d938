"""The contract of one pair's sums, and the plaintext twin behind it: the same integers and messages, NOT PROTECTED.

The owner sends its rows, the answerer multiplies them by its own and returns masked sums. Both then have shares of the
sums, whose total in the field is exactly ownerᵀ·answerer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.crypto import ring
from veracausa.crypto.backends.base import Bytes
from veracausa.crypto.moments.encoding import exact_product
from veracausa.crypto.moments.packing import INTEGER, PairPacking
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import P, Ring, Small
from veracausa.errors import WireError


class PairOwner(ABC):
    """Who encrypts, and opens masked sums."""

    @abstractmethod
    def query(self, number: int, rows: Small) -> Bytes:
        """Some rows for the answerer; a number is used once."""

    @abstractmethod
    def opened(self, answers: Iterator[Bytes]) -> Ring:
        """The owner's share, (its columns, the answerer's)."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many messages an answer has."""


class PairAnswerer(ABC):
    """Who multiplies, and masks."""

    function: Callable[[Any], Any]
    """What an engine runs on each task: pure, and from a module's top."""

    @abstractmethod
    def tasks(self, number: int, query: Bytes, rows: Small) -> Iterator[Any]:
        """The work on one query with the same rows of one's own; a query that is not as agreed is refused."""

    @abstractmethod
    def add(self, result: Any) -> None:
        """Take in a task's result."""

    @abstractmethod
    def replies(self) -> Iterator[Bytes]:
        """The messages of the answer, one after the other; then `share` is there."""

    share: Ring
    """The answerer's share, (the owner's columns, its own)."""


class MomentKeys(ABC):
    """One party's key at one start, and its end of every pair."""

    @abstractmethod
    def public_key(self) -> Bytes: ...

    @abstractmethod
    def meet(self, peer: str, key: Bytes) -> None:
        """Take in a peer's public key."""

    @abstractmethod
    def owner(self, peer: str, packing: PairPacking) -> PairOwner: ...

    @abstractmethod
    def answerer(self, peer: str, packing: PairPacking, masks: Masks) -> PairAnswerer: ...


class PlainKeys(MomentKeys):
    """No key at all: an answerer has the owner's rows."""

    def __init__(self, most: int) -> None:
        self.most = most

    def public_key(self) -> Bytes:
        return np.zeros(0, dtype=np.uint8)

    def meet(self, peer: str, key: Bytes) -> None:
        if key.size:
            raise WireError("key.key", f"{peer!r} sends a key, and nothing is encrypted")

    def owner(self, peer: str, packing: PairPacking) -> PairOwner:
        return PlainOwner(packing)

    def answerer(self, peer: str, packing: PairPacking, masks: Masks) -> PairAnswerer:
        return PlainAnswerer(packing, masks, self.most)


class PlainOwner(PairOwner):
    """Sends integers as they are."""

    answers = 1

    def __init__(self, packing: PairPacking) -> None:
        self.packing = packing

    def query(self, number: int, rows: Small) -> Bytes:
        return np.ascontiguousarray(rows, dtype="<i4").reshape(-1).view(np.uint8)

    def opened(self, answers: Iterator[Bytes]) -> Ring:
        (answer,) = answers
        shape = self.packing.columns, self.packing.factors
        if answer.size != 8 * shape[0] * shape[1]:
            raise WireError("moment_answer.sums", f"{answer.size} bytes for sums of shape {shape}")
        sums: Ring = np.ascontiguousarray(answer).view("<i8").reshape(shape)
        if sums.min() < 0 or sums.max() >= P:
            raise WireError("moment_answer.sums", "holds numbers outside the field")
        return sums


PlainTask = tuple[Small, Small, int]


def plain_products(task: PlainTask) -> NDArray[np.int64]:
    """The sums of products over some rows."""
    return exact_product(*task)


class PlainAnswerer(PairAnswerer):
    """Multiplies integers as they are; the mask is real."""

    function = staticmethod(plain_products)

    def __init__(self, packing: PairPacking, masks: Masks, most: int) -> None:
        self.packing, self.masks, self.most = packing, masks, most
        self._total = np.zeros((packing.columns, packing.factors), dtype=np.int64)

    def tasks(self, number: int, query: Bytes, rows: Small) -> Iterator[PlainTask]:
        shape = len(rows), self.packing.columns
        if query.size != INTEGER * shape[0] * shape[1]:
            raise WireError("moment_query.rows", f"{query.size} bytes for rows of shape {shape}")
        theirs = np.ascontiguousarray(query).view("<i4").reshape(shape).astype(np.float64)
        if np.abs(theirs).max(initial=0.0) > self.most:
            raise WireError("moment_query.rows", "holds numbers beyond the agreed range")
        yield theirs, rows, self.most

    def add(self, result: NDArray[np.int64]) -> None:
        self._total += result

    def replies(self) -> Iterator[Bytes]:
        self.share = self.masks.uniform(*self._total.shape)
        masked = ring.subtract(ring.reduce(self._total), self.share)
        yield masked.astype("<i8", copy=False).reshape(-1).view(np.uint8)
