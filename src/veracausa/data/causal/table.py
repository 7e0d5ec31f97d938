"""A table of one's own, CSV or Parquet, and the true edges where somebody knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, field_validator

from veracausa.data.causal import CausalData, CausalOptions, causal_data, edges_between
from veracausa.data.causal.columns import NAMING
from veracausa.data.columns import numbers_or_words
from veracausa.data.files import given_path
from veracausa.data.table_files import MISSING, read_table
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl


class CausalTableOptions(CausalOptions):
    path: str
    truth: str | None = None
    """A CSV with the columns `source` and `target`, one true edge a line."""
    id: str | None = None
    """The column that names a row; it is no attribute."""
    separator: str = ","
    columns: tuple[str, ...] | None = None
    """Only these, a list or names with commas between them; default: all but the id, and but names and dates."""
    categories: int = Field(20, ge=2)
    """A column of words with more different ones than this is no attribute: it holds names, not categories."""
    rows: int | None = Field(None, ge=2)
    categorical: tuple[str, ...] = ()
    """Columns of words, also where the words are numbers, such as codes."""
    missing: tuple[str, ...] = MISSING
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ",", ".", "'", " "] = ""
    encoding: str = "utf-8"

    @field_validator("columns", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return [name for part in given.split(",") if (name := part.strip())] if isinstance(given, str) else given


@causal_data.register("table", CausalTableOptions)
def table(options: CausalTableOptions) -> CausalData:
    path = given_path(options.path, "data.path")
    frame = read_table(
        path,
        options.separator,
        options.missing,
        categorical=options.categorical,
        decimal=options.decimal,
        thousands=options.thousands,
        encoding=options.encoding,
    )
    for name in (*(options.columns or ()), *([options.id] if options.id else ()), *options.categorical):
        if name not in frame.columns:
            raise InputError(f"{path}: no column {name!r}{did_you_mean(name, frame.columns)}")
    notes: list[str] = []
    others = [name for name in frame.columns if name != options.id]
    names = options.columns or attributes(frame.select(others), str(path), options.categories, notes)
    if not names:
        raise InputError(f"{path}: no column can be an attribute ({'; '.join(notes)}); add columns of numbers")
    values = np.stack([_numbers(frame[name], str(path), options.categories, notes) for name in names], axis=1)
    truth = None
    if options.truth is not None:
        place = given_path(options.truth, "data.truth")
        edges = read_table(place, text=("source", "target"))
        if not {"source", "target"} <= set(edges.columns):
            raise InputError(f"{place}: its columns are {', '.join(edges.columns)}; name them source,target")
        truth = edges_between(edges.select("source", "target").rows(), names, str(place))
    return CausalData(values, names, truth, tuple(notes)).head(options.rows)


def attributes(
    frame: pl.DataFrame, where: str, categories: int, notes: list[str], rows: Sequence[int] | None = None
) -> tuple[str, ...]:
    """The columns that may have causes and effects; the others, and why they are left out, go to the notes."""
    kept = []
    for column in frame:
        typed = _typed(column, where, rows)
        reason = _no_attribute(typed, categories) or _row_number(typed)
        if reason is None:
            kept.append(column.name)
        else:
            notes.append(f"{column.name}: left out, it holds {reason}")
    return tuple(kept)


def _typed(column: pl.Series, where: str, rows: Sequence[int] | None) -> pl.Series:
    """A column of words as numbers where they are meant as numbers; a stray word among them is refused.

    `rows` are the file's own row numbers from 0, for messages.
    """
    import polars as pl

    if column.dtype == pl.String and column.null_count() < len(column):
        declare = "or, if the column holds words, name it in data.categorical"
        numbers = numbers_or_words(column, where, rows, declare)
        return column if numbers is None else numbers
    return column.cast(pl.String) if column.dtype == pl.Categorical else column


def _no_attribute(column: pl.Series, categories: int) -> str | None:
    """Why a column can not be read as numbers; None: it can."""
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return None
    if column.dtype != pl.String:
        return f"values of the type {column.dtype}, not numbers"
    words = column.drop_nulls().unique().sort()
    return f"{len(words)} different words, such as {words[0]!r}" if len(words) > categories else None


def _row_number(column: pl.Series) -> str | None:
    """Why a column of numbers only numbers the rows; None: it does not."""
    if not column.dtype.is_integer() or len(column) < NAMING or column.null_count():
        return None
    values = column.to_numpy()
    first, last = int(values[0]), int(values[-1])
    counted = last - first == len(values) - 1 and bool((np.diff(values) == 1).all())
    return f"the numbers of the rows, {first} to {last}" if counted else None


def _numbers(
    column: pl.Series, where: str, categories: int, notes: list[str], rows: Sequence[int] | None = None
) -> np.ndarray:
    """A column as numbers, words numbered."""
    import polars as pl

    column = _typed(column, where, rows)
    if (reason := _no_attribute(column, categories)) is not None:
        raise InputError(
            f"{where}: column {column.name!r} holds {reason}; leave it out of --party and data.columns, name it by "
            f"--set data.id={column.name} if it names the rows, or raise --set data.categories={categories}"
        )
    if column.dtype != pl.String:
        return column.cast(pl.Float64).to_numpy().astype(np.float64)
    words = sorted(column.drop_nulls().unique().to_list())
    notes.append(f"{column.name}: words numbered from 0: {', '.join(words)}")
    number = {word: float(at) for at, word in enumerate(words)}
    return np.array([np.nan if word is None else number[word] for word in column.to_list()])
