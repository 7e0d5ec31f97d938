"""Which rows of a file train, validate and test, where the rows are streamed: a pure function of the seed.

Up to `WHOLE` rows they are the same as without streaming. Beyond, drawing them all at once would take memory that grows
with the file, so every `CHUNK` of rows draws its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from veracausa import seeding
from veracausa.data.options import DataOptions
from veracausa.data.split_tables import draw_splits
from veracausa.data.vertical import SPLITS, Split

CHUNK = 1 << 16
WHOLE = 1 << 24
LEFT_OUT = 3
"""Beside the numbers of `SPLITS`: beyond the job's limits."""

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class RowDraw:
    """The splits of a file with so many rows; `holdout` is None where test rows have a file of their own."""

    rows: int
    holdout: float | None
    validation: float = 0.0
    train: int | None = None
    test: int | None = None
    seed: int = 0
    whole: int = WHOLE

    def codes(self, start: int, stop: int) -> Codes:
        """(rows,) the number of each row's split among `SPLITS`, or `LEFT_OUT`."""
        if self.rows <= self.whole:
            return _drawn_at_once(self)[start:stop]
        parts = []
        for chunk in range(start // CHUNK, -(-stop // CHUNK)):
            first = chunk * CHUNK
            parts.append(self._limited(chunk)[max(0, start - first) : stop - first])
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint8)

    def length(self, split: Split) -> int:
        """How many rows a split has."""
        return int(_counts(self)[:, SPLITS.index(split)].sum())

    def row_of(self, split: Split, position: int) -> int:
        """The row of the file at this position of a split; the number of rows where there are fewer."""
        behind = np.cumsum(_counts(self)[:, SPLITS.index(split)])
        chunk = int(np.searchsorted(behind, position, side="right"))
        if chunk == len(behind):
            return self.rows
        first = chunk * CHUNK
        inside = np.flatnonzero(self.codes(first, min(self.rows, first + CHUNK)) == SPLITS.index(split))
        return first + int(inside[position - (int(behind[chunk - 1]) if chunk else 0)])

    def _limited(self, chunk: int) -> Codes:
        """A chunk's codes, those beyond the limits left out."""
        codes = self._drawn(chunk)
        before = _drawn_before(self)[chunk]
        for limit, kinds, met in (
            (self.train, (SPLITS.index("train"), SPLITS.index("validation")), before[0] + before[1]),
            (self.test, (SPLITS.index("test"),), before[2]),
        ):
            if limit is not None:
                chosen = np.isin(codes, kinds)
                codes[chosen & (met + np.cumsum(chosen) > limit)] = LEFT_OUT
        return codes

    def _drawn(self, chunk: int) -> Codes:
        size = min(CHUNK, self.rows - chunk * CHUNK)
        rng = np.random.default_rng(seeding.derive(self.seed, "holdout", "chunk", chunk))
        held, validated = rng.random((2, size))
        codes = np.full(size, SPLITS.index("train"), dtype=np.uint8)
        codes[validated < self.validation] = SPLITS.index("validation")
        if self.holdout is not None:
            codes[held < self.holdout] = SPLITS.index("test")
        return codes


@lru_cache(maxsize=8)
def _drawn_at_once(draw: RowDraw) -> Codes:
    limits = DataOptions(name="", train=draw.train, test=draw.test, validation=draw.validation)
    drawn = draw_splits((draw.rows, None if draw.holdout is not None else 0), limits, draw.holdout or 0.0, draw.seed)
    codes = np.full(draw.rows, LEFT_OUT, dtype=np.uint8)
    for number, split in enumerate(SPLITS):
        if split == "test" and draw.holdout is None:
            continue
        rows = drawn.rows[split]
        codes[(rows[: draw.test] if split == "test" else rows).numpy()] = number
    return codes


def _chunks(draw: RowDraw) -> Iterator[int]:
    return iter(range(-(-draw.rows // CHUNK)))


@lru_cache(maxsize=8)
def _counts(draw: RowDraw) -> NDArray[np.int64]:
    """(chunks, splits): how many rows of each split a chunk has."""
    found = [
        np.bincount(draw.codes(chunk * CHUNK, min(draw.rows, (chunk + 1) * CHUNK)), minlength=LEFT_OUT + 1)
        for chunk in _chunks(draw)
    ]
    return np.array(found, dtype=np.int64)[:, : len(SPLITS)]


@lru_cache(maxsize=8)
def _drawn_before(draw: RowDraw) -> NDArray[np.int64]:
    """(chunks, splits): how many rows of each split were drawn before a chunk, without limits."""
    found = np.array([np.bincount(draw._drawn(chunk), minlength=LEFT_OUT) for chunk in _chunks(draw)], dtype=np.int64)
    return np.concatenate([np.zeros((1, LEFT_OUT), dtype=np.int64), np.cumsum(found, axis=0)[:-1]])
