"""Ids as they are compared: text in one normal form, none missing, none twice."""

from __future__ import annotations

import re
import unicodedata
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


_WHOLE = re.compile(r"([+-]?\d+)\.0+", re.ASCII)


@dataclass(frozen=True)
class KeyRules:
    """When two ids are the same. Leading zeros always count: `007` is not `7`."""

    case_fold: bool = False
    whole_numbers: bool = True

    def normal(self, text: str) -> str:
        """The one way in which an id is written: NFKC, no white space around it, `17.0` as `17`."""
        text = unicodedata.normalize("NFKC", text).strip()
        if self.case_fold:
            text = unicodedata.normalize("NFKC", text.casefold()).strip()
        if self.whole_numbers and (whole := _WHOLE.fullmatch(text)):
            text = whole[1]
        return text


def normal_keys(ids: Sequence[str], rules: KeyRules, source: str) -> list[str]:
    """Every id in its normal form; an empty one, or two that are the same, are refused by their rows' numbers."""
    keys = [rules.normal(text) for text in ids]
    if not keys:
        raise InputError(f"{source}: has no ids; add rows")
    for row, key in enumerate(keys, 1):
        if not key:
            raise InputError(f"{source}: row {row}: the id is empty; fill it in or remove the row")
    if (both := first_repeat(keys)) is not None:
        raise InputError(
            f"{source}: rows {both[0] + 1} and {both[1] + 1} have the same id (as ids are compared); keep one row an id"
        )
    return keys


def first_repeat(keys: Sequence[str]) -> tuple[int, int] | None:
    """The first two rows, counted from 0, with the same key."""
    if len(set(keys)) == len(keys):
        return None
    first: dict[str, int] = {}
    for row, key in enumerate(keys):
        if key in first:
            return first[key], row
        first[key] = row
    return None


def texts(column: pl.Series) -> list[str | None]:
    """A column of ids as text, None where one is missing."""
    import polars as pl

    if column.dtype.is_float():
        # A writer that met a gap turns the integers 1, 2 into 1.0, 2.0; they are still the ids 1, 2.
        column = column.fill_nan(None)
        if bool((column.drop_nulls() == column.drop_nulls().round(0)).all()):
            column = column.cast(pl.Int64)
    written: list[str | None] = column.cast(pl.String).to_list()
    return written


@dataclass(frozen=True, eq=False)
class TableFile:
    """The rows of one file and the column that names them; without one, the row's number from 1 does."""

    path: Path
    frame: pl.DataFrame
    id: str | None = None

    def __post_init__(self) -> None:
        if self.id is not None:
            self.require(self.id, "the id")

    @property
    def columns(self) -> list[str]:
        return self.frame.columns

    @property
    def rows(self) -> int:
        return self.frame.height

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
