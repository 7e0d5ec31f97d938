"""The same people at every party: rows of files brought into one order by id. Ids are compared as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from veracausa.data.keys import first_repeat, texts
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class TableFile:
    """The rows of one file and the column that names them; without one, the row's number from 1 does."""

    path: Path
    frame: pl.DataFrame
    id: str | None = None

    def __post_init__(self) -> None:
        if self.id is not None:
            self.require(self.id, "the id")

    def require(self, column: str, what: str) -> None:
        if column not in self.frame.columns:
            raise InputError(f"{self.path}: no column {column!r} for {what}{did_you_mean(column, self.frame.columns)}")

    @cached_property
    def ids(self) -> list[str]:
        """Every row's id, all different."""
        if self.id is None:
            return [str(row) for row in range(1, self.frame.height + 1)]
        ids = []
        for row, name in enumerate(texts(self.frame[self.id]), 1):
            if name is None:
                raise InputError(
                    f"{self.path}: row {row}: the id ({self.id!r}) is missing; fill it in or remove the row"
                )
            ids.append(name)
        if (both := first_repeat(ids)) is not None:
            first, second = both
            raise InputError(
                f"{self.path}: id {ids[first]!r} stands in rows {first + 1} and {second + 1}; keep one row an id"
            )
        return ids

    @cached_property
    def row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    def find(self, ids: Sequence[str]) -> Tensor:
        """(ids,) int64: the row of each id, -1 where this file lacks it."""
        return torch.tensor([self.row_of.get(name, -1) for name in ids], dtype=torch.int64)

    def take(self, rows: Tensor) -> pl.DataFrame:
        return self.frame[np.asarray(rows)]


def held_by_all(found: Sequence[Tensor]) -> Tensor:
    """(positions,) bool: where no file lacks the id."""
    return torch.stack([rows >= 0 for rows in found]).all(dim=0)
