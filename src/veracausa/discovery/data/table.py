"""A table of one's own, CSV or Parquet, and the true edges where somebody knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from veracausa.data.files import given_path
from veracausa.data.number_words import numbers_or_words
from veracausa.data.table_files import MISSING, read_table
from veracausa.discovery.data import CausalData, CausalOptions, causal_data, edges_between
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl


class TableOptions(CausalOptions):
    path: str
    truth: str | None = None
    """A CSV with the columns `source` and `target`, one true edge a line."""
    id: str | None = None
    """The column that names a row; it is no attribute."""
    separator: str = ","
    columns: tuple[str, ...] | None = None
    """Only these; default: all but the id."""
    categories: int = Field(20, ge=2)
    """A column of words with more different ones than this is refused: it is a name, not a category."""
    rows: int | None = Field(None, ge=2)
    categorical: tuple[str, ...] = ()
    """Columns of words, also where the words are numbers, such as codes."""
    missing: tuple[str, ...] = MISSING
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ",", ".", "'", " "] = ""
    encoding: str = "utf-8"


@causal_data.register("table", TableOptions)
def table(options: TableOptions) -> CausalData:
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
    names = options.columns or tuple(name for name in frame.columns if name != options.id)
    notes: list[str] = []
    values = np.stack([_numbers(frame[name], str(path), options.categories, notes) for name in names], axis=1)
    truth = None
    if options.truth is not None:
        place = given_path(options.truth, "data.truth")
        edges = read_table(place, text=("source", "target"))
        if not {"source", "target"} <= set(edges.columns):
            raise InputError(f"{place}: its columns are {', '.join(edges.columns)}; name them source,target")
        truth = edges_between(edges.select("source", "target").rows(), names, str(place))
    return CausalData(values, names, truth, tuple(notes)).head(options.rows)


def _numbers(
    column: pl.Series, where: str, categories: int, notes: list[str], rows: Sequence[int] | None = None
) -> np.ndarray:
    """A column as numbers, words numbered; `rows` are the file's own row numbers from 0, for messages."""
    import polars as pl

    if column.dtype == pl.String and column.null_count() < len(column):
        declare = "or, if the column holds words, name it in data.categorical"
        numbers = numbers_or_words(column, where, rows, declare)
        column = column if numbers is None else numbers
    if column.dtype == pl.Categorical:
        column = column.cast(pl.String)
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64).to_numpy().astype(np.float64)
    if column.dtype != pl.String:
        raise InputError(
            f"{where}: column {column.name!r} holds {column.dtype}, not numbers; name the others in data.columns"
        )
    words = sorted(column.drop_nulls().unique().to_list())
    if len(words) > categories:
        raise InputError(
            f"{where}: column {column.name!r} holds {len(words)} different words, such as {words[0]!r}; "
            f"set data.id = {column.name!r} if it names the rows, name the others in data.columns, "
            "or raise data.categories"
        )
    notes.append(f"{column.name}: words numbered from 0: {', '.join(words)}")
    number = {word: float(at) for at, word in enumerate(words)}
    return np.array([np.nan if word is None else number[word] for word in column.to_list()])
