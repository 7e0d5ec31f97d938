"""Ids as they are compared: text in one normal form, none missing, none twice."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veracausa.errors import InputError

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
