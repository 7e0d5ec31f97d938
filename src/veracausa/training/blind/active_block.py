"""The active party's part of the sums: features, a constant and labels, without rows that these single out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.config import Job
from veracausa.data.vertical import Part
from veracausa.events import ProgressCallback
from veracausa.training.blind.label_columns import LabelColumns
from veracausa.training.blind.leverage import heavy_rows
from veracausa.training.blind.rows import VALUE_BITS, OwnColumns, shortened


@dataclass(frozen=True)
class ActiveBlock:
    """[own features, the constant 1, labels], block by block over the training rows."""

    job: Job
    part: Part
    columns: OwnColumns | None
    targets: LabelColumns
    clip: float | None = None
    left_out: Mask | None = None
    """Rows that are all zeros here."""

    @property
    def features(self) -> int:
        return 0 if self.columns is None else self.columns.width

    @property
    def width(self) -> int:
        return self.features + 1 + self.targets.width

    def blocks(self) -> Iterator[Array]:
        rows, start = self.job.blind.block_rows, 0
        own: Iterator[Array] = repeat(np.zeros((0, 0)))
        if self.columns is not None:
            own = self.columns.training_blocks(self.part, rows)
        for features, label in zip(own, self.targets.blocks(rows), strict=False):
            block = np.concatenate([features.reshape(len(label), -1), np.ones((len(label), 1)), label], axis=1)
            if self.clip is not None:
                block = shortened(block, self.clip, fixed=1 + self.targets.width)
            if self.left_out is not None:
                block = np.where(self.left_out[start : start + len(label), None], 0.0, block)
            start += len(label)
            yield block

    def without_heavy_rows(self, key: bytes, beat: ProgressCallback = lambda share: None) -> ActiveBlock:
        """The same, with zeros in rows that these columns single out: sums would tell what others know of them.

        Noise on the sums covers such rows, and `blind.allow_small_n` says that telling them is meant. `key` is the
        party's own: rows are filled in by it, so that no row alone is missing. `beat` is called at every block.
        """
        blind = self.job.blind
        if blind.epsilon is not None or blind.allow_small_n:
            return self
        unit = 2.0**VALUE_BITS
        rng = np.random.default_rng(int.from_bytes(key, "big"))

        def rounded() -> Iterator[Array]:
            for block in self.blocks():
                beat(0.99)
                yield np.rint(block * unit) / unit

        found = heavy_rows(rounded, blind.min_rows, rng)
        return replace(self, left_out=found) if found.any() else self

    def note(self) -> tuple[str, ...]:
        if self.left_out is None:
            return ()
        count = int(self.left_out.sum())
        return (
            f"{count} of {len(self.left_out)} training rows are left out of the sums with labels: the active party's "
            "own columns single some of them out",
        )
