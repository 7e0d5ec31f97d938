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
        import polars as pl

        if self.id is None:
            return [str(row) for row in range(1, self.frame.height + 1)]
        series = self.frame[self.id]
        if series.dtype.is_float():
            # A writer that met a gap turns the integers 1, 2 into 1.0, 2.0; they are still the ids 1, 2.
            series = series.fill_nan(None)
            if bool((series.drop_nulls() == series.drop_nulls().round(0)).all()):
                series = series.cast(pl.Int64)
        missing = series.is_null().arg_true()
        if len(missing):
            raise InputError(
                f"{self.path}: row {int(missing[0]) + 1}: the id ({self.id!r}) is missing; fill it in or remove the row"
            )
        ids: list[str] = series.cast(pl.String).to_list()
        if len(set(ids)) < len(ids):
            first: dict[str, int] = {}
            for row, name in enumerate(ids):
                if name in first:
                    both = f"rows {first[name] + 1} and {row + 1}"
                    raise InputError(f"{self.path}: id {name!r} stands in {both}; keep one row an id")
                first[name] = row
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
