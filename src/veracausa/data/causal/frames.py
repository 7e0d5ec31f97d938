"""Data that were given in Python, as columns to discover a graph in: pandas and polars frames, and arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.data.causal import CausalData
from veracausa.data.causal.coding import IN_PYTHON, Reading, attributes, coded_columns
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl


def as_causal(X: Any, named: Collection[str] = ()) -> CausalData:
    """Values, names and nominal columns of causal data, a frame or an array; an array's columns are x0, x1, ...

    Words of a frame become categories. Names, dates and row numbers are left out, and the notes say so; if they are
    `named` they are refused. Data that were read before keep their notes to themselves.
    """
    columns = getattr(X, "columns", None)
    if isinstance(X, CausalData):
        data = replace(X, values=np.ascontiguousarray(X.values), notes=())
    elif columns is not None:
        data = _of_frame(X, columns, named)
    else:
        data = _of_array(X)
    if len(data.names) < 2:
        left = f" ({'; '.join(data.notes)})" if data.notes else ""
        raise InputError(f"X: {len(data.names)} column is too few for a graph{left}; give at least 2")
    return data


def _of_array(X: Any) -> CausalData:
    try:
        values = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("X: an array of numbers is needed; give words in a pandas or polars frame") from None
    if values.ndim != 2:
        raise InputError(f"X: shape {values.shape} is no table; give rows and columns")
    return CausalData(values, tuple(f"x{at}" for at in range(values.shape[1])))


def _of_frame(X: Any, columns: Any, named: Collection[str]) -> CausalData:
    import polars as pl

    names = [str(name) for name in columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"X: two columns are named {twice!r}; rename one")
    ordinal: dict[str, tuple[str, ...]] = {}
    frame = pl.DataFrame([_series(X[name], str(name), ordinal) for name in columns])
    reading = Reading(ordinal=ordinal, remedies=IN_PYTHON)
    notes: list[str] = []
    found = attributes(frame.select([name for name in names if name not in named]), "X", reading, notes)
    kept = tuple(name for name in names if name in found or name in named)
    values, nominal = coded_columns(frame, kept, "X", reading, notes)
    return CausalData(values, kept, None, tuple(notes), nominal)


def _series(column: Any, name: str, ordinal: dict[str, tuple[str, ...]]) -> pl.Series:
    """One column of any frame as polars holds it; an ordered category of pandas is entered as a scale."""
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
    if letter == "M" and hasattr(column, "astype"):
        return _of_objects(np.asarray(column.astype(object).to_numpy()), column, name)
    if letter in "iufb" and not isinstance(kind, np.dtype) and hasattr(column, "isna"):
        # pandas spells a missing value of its nullable types pd.NA, which has a way to nan.
        gaps = np.asarray(column.isna())
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return pl.Series(name, values if gaps.any() or letter == "f" else column.to_numpy(dtype=kind.numpy_dtype))
    array = np.asarray(column.to_numpy())
    return pl.Series(name, array) if array.dtype.kind in "iufb" else _of_objects(array, column, name)


def _of_objects(array: np.ndarray, column: Any, name: str) -> pl.Series:
    """A column of Python's own objects: all numbers, all true or false, all dates, or else words."""
    import polars as pl

    gaps = np.asarray(column.isna()) if hasattr(column, "isna") else np.array([item is None for item in array])
    held: list[Any] = [None if gap else item for item, gap in zip(array.tolist(), gaps, strict=True)]
    known = [item for item in held if item is not None]
    if any(isinstance(item, list | tuple | Mapping | set | np.ndarray) for item in known):
        raise InputError(f"X: column {name!r} holds lists, not single values; leave it out or make columns of it")
    kinds: tuple[tuple[Any, Any, Callable[[Any], Any]], ...] = (
        ((bool, np.bool_), pl.Boolean, bool),
        ((Real, Decimal), pl.Float64, float),
        (date, pl.Date, lambda item: date(item.year, item.month, item.day)),
    )
    fits = (entry[1:] for entry in kinds if known and all(isinstance(item, entry[0]) for item in known))
    dtype, plain = next(fits, (pl.String, str))
    return pl.Series(name, [None if item is None else plain(item) for item in held], dtype=dtype)
