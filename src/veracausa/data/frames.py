"""Frames and arrays of Python as tables: what pandas, polars and NumPy hold, as polars holds it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.data.array_files import ROW
from veracausa.data.table_files import as_meant
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl


def is_array(given: Any) -> bool:
    """Whether it holds values without names of columns."""
    return isinstance(given, list) or (hasattr(given, "__array__") and not hasattr(given, "columns"))


def is_rows(given: Any) -> bool:
    """Whether it is meant as a table: no path, and no mapping of several."""
    return not isinstance(given, str | os.PathLike | Mapping)


def table_of(given: Any, where: str, id: str | None = None) -> pl.DataFrame:
    """A frame of pandas or polars, or an array, as a table is read from a Parquet file.

    where: what the caller wrote, for messages.
    id: the column that names a row; the index of a pandas frame counts as one where it has that name.
    An array's columns are x0, x1, ... and its id is the row's number.
    """
    import polars as pl

    if isinstance(given, str | os.PathLike):
        raise InputError(f"{where}: is a path, not a frame; name files in the job, or read the file first")
    if isinstance(given, pl.LazyFrame):
        raise InputError(f"{where}: is a LazyFrame, which holds no rows yet; call its collect()")
    if is_array(given):
        frame = _of_array(given, where)
    elif hasattr(given, "columns") and hasattr(given, "__getitem__"):
        frame = _of_frame(given, where, id)
    else:
        raise InputError(
            f"{where}: a {type(given).__name__} is no table; give a pandas or polars frame, or an array of numbers"
        )
    if not frame.height:
        raise InputError(f"{where}: has no rows; add rows")
    return frame


def column_names(columns: Any, where: str) -> list[str]:
    """The names of a frame's columns as text, all different."""
    names = [str(name) for name in columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: two columns are named {twice!r}; rename one")
    return names


def _of_array(given: Any, where: str) -> pl.DataFrame:
    import polars as pl

    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{where}: cannot be made an array; give rows and columns of numbers") from None
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(f"{where}: shape {array.shape} is no table; give rows and columns")
    if array.dtype.kind not in "iufb":
        raise InputError(f"{where}: an array of numbers is needed; give words in a pandas or polars frame")
    rows = pl.Series(ROW, np.arange(1, len(array) + 1))
    return pl.DataFrame(
        [rows, *(pl.Series(f"x{at}", np.ascontiguousarray(array[:, at])) for at in range(array.shape[1]))]
    )


def _of_frame(given: Any, where: str, id: str | None) -> pl.DataFrame:
    import polars as pl

    names = column_names(given.columns, where)
    columns = [given[name] for name in given.columns]
    index = getattr(given, "index", None)
    if id is not None and id not in names and hasattr(given, "rename_axis"):
        if str(getattr(index, "name", None)) != id:
            raise InputError(
                f"{where}: no column {id!r} for the id{did_you_mean(id, names)}; an index counts where it has this "
                f"name: rename_axis({id!r}), or reset_index() for one of several levels"
            )
        names, columns = [id, *names], [index.to_series(), *columns]  # type: ignore[union-attr]
    if not names:
        raise InputError(f"{where}: has no columns; add some")
    frame = pl.DataFrame([series_of(column, name, {}, where) for name, column in zip(names, columns, strict=True)])
    for name, kind in frame.schema.items():
        if kind == pl.Object or kind.is_nested():
            raise InputError(f"{where}: column {name!r} holds no single values; leave it out or make columns of it")
    # Moments count in one unit, wherever they come from: a model keeps their numbers.
    moments = [pl.col(name).cast(pl.Datetime("us")) for name, kind in frame.schema.items() if kind == pl.Datetime]
    words = [pl.col(name).cast(pl.Categorical) for name, kind in frame.schema.items() if kind == pl.Enum]
    return as_meant(frame.with_columns(*moments, *words))


def label_series(values: Any, name: str, where: str) -> pl.Series:
    """Labels that are not a column of a frame: a column of values of their own."""
    if hasattr(values, "to_numpy"):
        return series_of(values, name, {}, where)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{where}: cannot be made a column; name one, or give one value a row") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{where}: shape {array.shape} is no column; name a column, or give one value a row")
    return series_of(_Held(array), name, {}, where)


class _Held:
    """An array that is asked as a column of a frame is."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.dtype = array, array.dtype

    def to_numpy(self) -> np.ndarray[Any, Any]:
        return self.array


def series_of(column: Any, name: str, ordinal: dict[str, tuple[str, ...]], where: str) -> pl.Series:
    """One column of any frame as polars holds it; an ordered category of pandas is entered as a scale in `ordinal`."""
    import polars as pl

    if isinstance(column, pl.Series):
        return column.rename(name)
    kind: Any = getattr(column, "dtype", None)
    if (categories := getattr(kind, "categories", None)) is not None:
        if getattr(kind, "ordered", False):
            ordinal[name] = tuple(str(word) for word in categories)
        words = [None if gap else str(word) for word, gap in zip(column, column.isna(), strict=True)]
        return pl.Series(name, words, dtype=pl.String).cast(pl.Categorical)
    letter = getattr(kind, "kind", "O")
    if letter == "m":
        return pl.Series(name, np.asarray(column.to_numpy(), dtype="m8[us]"))
    if letter == "M":
        if isinstance(kind, np.dtype):
            return pl.Series(name, np.asarray(column.to_numpy(), dtype="M8[us]"))
        return _of_objects(np.asarray(column.astype(object).to_numpy()), column, name, where)
    if letter in "iufb" and not isinstance(kind, np.dtype) and hasattr(column, "isna"):
        # pandas spells a missing value of its nullable types pd.NA, which has a way to nan.
        gaps = np.asarray(column.isna())
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return pl.Series(name, values if gaps.any() or letter == "f" else column.to_numpy(dtype=kind.numpy_dtype))
    array = np.asarray(column.to_numpy())
    return pl.Series(name, array) if array.dtype.kind in "iufb" else _of_objects(array, column, name, where)


def _of_objects(array: np.ndarray, column: Any, name: str, where: str) -> pl.Series:
    """A column of Python's own objects: all numbers, all true or false, all dates, or else words."""
    import polars as pl

    gaps = np.asarray(column.isna()) if hasattr(column, "isna") else np.array([item is None for item in array])
    held: list[Any] = [None if gap else item for item, gap in zip(array.tolist(), gaps, strict=True)]
    known = [item for item in held if item is not None]
    if any(isinstance(item, list | tuple | Mapping | set | np.ndarray) for item in known):
        raise InputError(f"{where}: column {name!r} holds lists, not single values; leave it out or make columns of it")
    kinds: tuple[tuple[Any, Any, Callable[[Any], Any]], ...] = (
        ((bool, np.bool_), pl.Boolean, bool),
        ((Real, Decimal), pl.Float64, float),
        (datetime, pl.Datetime("us"), _plain_time),
        (date, pl.Date, lambda item: date(item.year, item.month, item.day)),
    )
    fits = (entry[1:] for entry in kinds if known and all(isinstance(item, entry[0]) for item in known))
    dtype, plain = next(fits, (pl.String, str))
    return pl.Series(name, [None if item is None else plain(item) for item in held], dtype=dtype)


def _plain_time(item: datetime) -> datetime:
    """A moment without a zone: that of another zone as UTC says it."""
    plain = item.astimezone(UTC) if item.tzinfo is not None else item
    return datetime(*plain.timetuple()[:6], plain.microsecond)
