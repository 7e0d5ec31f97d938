"""Vertical data: per party its features, ids, and labels only at the active party; in memory, or read in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from veracausa.data.preprocessing import column_count

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class RowBlock:
    """One party's rows at consecutive positions, from `start` on."""

    start: int
    length: int
    features: Tensor | None = None
    """(n, *shape) float32 of the n rows that it holds, pixels in [0, 1]; None for a party without features."""
    present: Tensor | None = None
    """(length,) bool: which of the positions it holds. None: all."""
    labels: Tensor | None = None
    ids: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self.length


class RowStream(Protocol):
    """Rows that are read from a file each time they are wanted, and never lie in memory as a whole.

    A stream holds paths and settings, so a process of the party can be handed one.
    """

    @property
    def has_features(self) -> bool:
        """Whether the party holds features."""

    def blocks(self, rows: int, start: int = 0) -> Iterator[RowBlock]:
        """The rows from position `start` on, so many at a time; the last block may be shorter."""


@dataclass(frozen=True)
class Part:
    """One party's rows of one split.

    A *position* is an index into the agreed alignment, 0 … len(part) - 1, the same person at every party. Only
    positions ever travel. `features` may be a view of a larger array (a strip of an image): a run holds one copy of
    the data.
    """

    length: int
    features: Tensor | None = None
    """(n, *shape) uint8 pixels or float32 values of the n rows this party holds; None for a party without features."""
    index: Tensor | None = None
    """(length,) int64: position -> row of `features`, -1 where the party lacks the id. None: it holds all, in order."""
    labels: Tensor | None = None
    """(length,) int64 classes or float32 targets; the active party's alone."""
    ids: tuple[str, ...] | None = None
    """The raw identifiers by position, where the data has them. They never leave the party."""
    groups: tuple[int, ...] | None = None
    """For each feature of a table, the number of the original column it came from."""
    stream: RowStream | None = None
    """Where the rows come from if they are not in memory: then `features`, `labels` and `ids` are None."""

    def __len__(self) -> int:
        return self.length

    @property
    def has_features(self) -> bool:
        """Whether the party holds features, in memory or not."""
        return self.features is not None if self.stream is None else self.stream.has_features

    def blocks(self, rows: int, start: int = 0) -> Iterator[RowBlock]:
        """The rows from position `start` on, so many at a time, in memory or not; the last block may be shorter."""
        if self.stream is not None:
            yield from self.stream.blocks(rows, start)
            return
        for first in range(start, self.length, rows):
            positions = torch.arange(first, min(first + rows, self.length))
            present = None if self.index is None else self.present(positions)
            held = positions if present is None else positions[present]
            yield RowBlock(
                first,
                len(positions),
                None if self.features is None else self.take(held),
                present,
                None if self.labels is None else self.labels[positions],
                None if self.ids is None else self.ids[first : first + rows],
            )

    def present(self, positions: Tensor) -> Tensor:
        """Which of the positions this party really holds."""
        if self.index is None:
            return torch.ones(len(positions), dtype=torch.bool)
        return self.index[positions] >= 0

    def present_count(self) -> int:
        """How many of its positions this party really holds."""
        return self.length if self.index is None else int((self.index >= 0).sum())

    def take(self, positions: Tensor) -> Tensor:
        """The features at these positions, float32; pixels come as [0, 1]."""
        if self.stream is not None:
            raise ValueError("these rows are streamed: they come in blocks, not at any position")
        if self.features is None:
            raise ValueError("this party holds no features")
        rows = positions if self.index is None else self.index[positions]
        rows = rows.to(self.features.device)
        batch = self.features[rows]
        return batch.to(torch.float32).div_(255) if batch.dtype == torch.uint8 else batch

    def none(self) -> Part:
        """None of the rows, in the same shape and types."""
        return Part(
            0,
            None if self.features is None else self.features[:0],
            labels=None if self.labels is None else self.labels[:0],
            ids=None if self.ids is None else (),
            groups=self.groups,
        )

    def to(self, device: torch.device) -> Part:
        """The same part with features and labels on `device`."""
        return Part(
            self.length,
            None if self.features is None else self.features.to(device),
            self.index,
            None if self.labels is None else self.labels.to(device),
            self.ids,
            self.groups,
            self.stream,
        )


@dataclass(frozen=True)
class PartyData:
    """Everything one party holds."""

    name: str
    shape: tuple[int, ...]
    """Of one row's features: (channels, height, width), (columns,), or () for a party without features."""
    train: Part
    validation: Part
    test: Part
    preprocessing: Mapping[str, Any] | None = None
    """How a table's columns became numbers, fitted on its own training rows; plain JSON, saved with its model."""
    profile: tuple[Mapping[str, Any], ...] = ()
    """What its columns are and what was done to each, for its own report; it never leaves the party."""

    @property
    def columns(self) -> int | None:
        """How many columns its table has as features, before words became several numbers; None: no table."""
        return column_count(self.preprocessing)

    def part(self, split: Split) -> Part:
        return {"train": self.train, "validation": self.validation, "test": self.test}[split]


@dataclass(frozen=True)
class VerticalDataset:
    """One data set, split between parties; a run hands each party its own `PartyData` and nothing else."""

    name: str
    active: str
    parties: Mapping[str, PartyData]
    task: Literal["classification", "regression"]
    classes: tuple[str, ...] = ()
    """Class names by label; empty for regression."""
    join: Literal["width", "height", "features"] = "features"
    """Along which axis the parties' representations are put side by side again."""
    notes: tuple[str, ...] = field(default_factory=tuple)
    """What a reader of the results must know, such as that the files hold a subset."""

    @property
    def passive(self) -> tuple[str, ...]:
        return tuple(name for name in self.parties if name != self.active)
