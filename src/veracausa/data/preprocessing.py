"""How a party's columns become numbers: fitted on its own training rows, kept as plain JSON, applied to any rows.

The fitted dict, which is saved with the party's model::

    {"version": 1, "columns": [
        {"name": "age", "kind": "numeric", "mean": 38.6, "std": 13.6, "missing": false},
        {"name": "job", "kind": "categorical", "values": ["clerk", "nurse"], "other": false, "missing": true},
    ]}

A numeric column gives its standardised value, and with `missing` a 0/1 column that says where a value was missing
(which then counts as the mean). A categorical column gives one 0/1 column a value, one for all `other` values where
rare ones were put together, and with `missing` one for missing values. A value never seen in training is `other`, or
all zeros; a missing one where training had none likewise. A NaN counts as missing. A `constant` column, which had one
value in all training rows, or none in any, gives nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from veracausa.data.columns import fault, numbers_of, numbers_or_words
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl

# More values than this are put together as `other`, the rarest first: a column of free text must not become thousands.
MAX_VALUES = 64
DECLARE = "or, if the column holds words, name it in data.categorical"


def fit(
    frame: pl.DataFrame, columns: Sequence[str], where: str = "the table", rows: Sequence[int] | None = None
) -> dict[str, Any]:
    """The preprocessing of these columns, learnt from these rows alone; `where` and `rows` as for `apply`."""
    return {"version": 1, "columns": [_fit_column(frame[name], where, rows) for name in columns]}


def apply(
    preprocessing: Mapping[str, Any], frame: pl.DataFrame, where: str = "the table", rows: Sequence[int] | None = None
) -> Tensor:
    """(rows, features) float32, finite. `where` and `rows` (the file's own row numbers) are for messages."""
    blocks: list[np.ndarray[Any, Any]] = []
    for column in preprocessing["columns"]:
        if column["kind"] == "constant":
            continue
        if column["name"] not in frame.columns:
            raise InputError(f"{where}: no column {column['name']!r}{did_you_mean(column['name'], frame.columns)}")
        series = frame[column["name"]]
        blocks += (_numeric if column["kind"] == "numeric" else _categorical)(column, series, where, rows)
    if not blocks:
        return torch.empty((frame.height, 0), dtype=torch.float32)
    return torch.from_numpy(np.stack(blocks, axis=1))


def feature_names(preprocessing: Mapping[str, Any]) -> tuple[str, ...]:
    """What each number of a row is, in order."""
    names: list[str] = []
    for column in preprocessing["columns"]:
        name = column["name"]
        if column["kind"] == "constant":
            continue
        names += [name] if column["kind"] == "numeric" else [f"{name}={value}" for value in column["values"]]
        names += [f"{name}: other"] if column.get("other") else []
        names += [f"{name}: missing"] if column["missing"] else []
    return tuple(names)


def feature_groups(preprocessing: Mapping[str, Any]) -> tuple[int, ...]:
    """For each number of a row, which of the columns it came from."""
    groups: list[int] = []
    for number, column in enumerate(preprocessing["columns"]):
        if column["kind"] == "constant":
            continue
        values = 1 if column["kind"] == "numeric" else len(column["values"])
        groups += [number] * (values + bool(column.get("other")) + bool(column["missing"]))
    return tuple(groups)


def column_count(preprocessing: Mapping[str, Any] | None) -> int | None:
    """How many of a table's columns give features, before words become several numbers; None: no table."""
    if not preprocessing:
        return None
    return sum(1 for column in preprocessing["columns"] if column["kind"] != "constant")


def _fit_column(series: pl.Series, where: str, rows: Sequence[int] | None) -> dict[str, Any]:
    import polars as pl

    if series.dtype == pl.String and (numbers := numbers_or_words(series, where, rows, DECLARE)) is not None:
        series = numbers
    if series.dtype.is_numeric() or series.dtype.is_temporal():
        values = numbers_in(series, where, rows)
        known = values[~np.isnan(values)]
        missing = bool(len(known) < len(values))
        if not len(known) or (not missing and bool((known == known[0]).all())):
            return constant_column(series.name)
        return numeric_column(series.name, float(known.mean()), float(known.std()), missing, where)
    check_words(series.name, series.dtype, where)
    counts = series.cast(pl.String).drop_nulls().value_counts(sort=False)
    return word_column(series.name, dict(counts.iter_rows()), series.null_count() > 0)


def constant_column(name: str) -> dict[str, Any]:
    """A column that had one value in all training rows, or none in any."""
    return {"name": name, "kind": "constant", "missing": False}


def numeric_column(name: str, mean: float, std: float, missing: bool, where: str) -> dict[str, Any]:
    """A column of numbers with this mean and spread."""
    # A constant column has a spread of rounding errors only; dividing by it would blow them up.
    if std <= 1e-9 * max(abs(mean), 1e-300):
        std = 1.0
    if not (np.isfinite(mean) and np.isfinite(std)):
        raise InputError(f"{where}: column {name!r} holds numbers too large to standardise; rescale it")
    return {"name": name, "kind": "numeric", "mean": mean, "std": std, "missing": missing}


def word_column(name: str, counts: Mapping[str, int], missing: bool) -> dict[str, Any]:
    """A column of words that stood so often in the training rows; the rarest of many are put together."""
    by_count = sorted(counts, key=lambda word: (-counts[word], word))
    if not by_count or (len(by_count) == 1 and not missing):
        return constant_column(name)
    other = len(by_count) > MAX_VALUES
    kept = sorted(by_count[: MAX_VALUES - 1 if other else MAX_VALUES])
    return {"name": name, "kind": "categorical", "values": kept, "other": other, "missing": missing}


def check_words(name: str, dtype: pl.DataType, where: str) -> None:
    """Refuse a type that is neither a number nor words."""
    import polars as pl

    if dtype.base_type() not in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Null):
        raise InputError(
            f"{where}: column {name!r} is of type {dtype}; only numbers, text, dates and true/false can be used"
        )


def _numeric(
    column: Mapping[str, Any], series: pl.Series, where: str, rows: Sequence[int] | None
) -> list[np.ndarray[Any, Any]]:
    values = (numbers_in(series, where, rows) - column["mean"]) / column["std"]
    absent = np.isnan(values)
    with np.errstate(over="ignore"):
        standardised = np.where(absent, 0.0, values).astype(np.float32)
    if not np.isfinite(standardised).all():
        at = int(np.flatnonzero(~np.isfinite(standardised))[0])
        raise InputError(
            f"{where}: column {series.name!r}, row {_row(at, rows)}: {series[at]} is too large; correct it"
        )
    return [standardised, absent.astype(np.float32)] if column["missing"] else [standardised]


def _categorical(
    column: Mapping[str, Any], series: pl.Series, where: str, rows: Sequence[int] | None
) -> list[np.ndarray[Any, Any]]:
    import polars as pl

    values: list[str] = column["values"]
    codes = series.cast(pl.String).replace_strict(values, range(len(values)), default=-1, return_dtype=pl.Int32)
    found = codes.fill_null(-1).to_numpy()
    blocks = [(found == code).astype(np.float32) for code in range(len(values))]
    absent = series.is_null().to_numpy()
    if column["other"]:
        # Without a column of its own, a missing value is one more that training did not know.
        unknown = (found < 0) & ~absent if column["missing"] else found < 0
        blocks.append(unknown.astype(np.float32))
    if column["missing"]:
        blocks.append(absent.astype(np.float32))
    return blocks


def numbers_in(series: pl.Series, where: str, rows: Sequence[int] | None) -> np.ndarray[Any, Any]:
    """float64, NaN where missing; what is no finite number is refused with its row."""
    import polars as pl

    plain = series.to_physical() if series.dtype.is_temporal() else series
    numbers = plain.cast(pl.Float64, strict=False) if plain.dtype.is_numeric() else numbers_of(plain)
    lost = (numbers.is_null() & series.is_not_null()).arg_true()
    if len(lost):
        at = int(lost[0])
        raise InputError(f"{where}: column {series.name!r}, row {_row(at, rows)}: {fault(str(series[at]))}")
    values = numbers.to_numpy().astype(np.float64)
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise InputError(infinity(series.name, _row(int(infinite[0]), rows) - 1, where))
    return values


def infinity(name: str, row: int, where: str) -> str:
    """What is said of an infinite value; rows are counted from 0 here."""
    return (
        f"{where}: column {name!r}, row {row + 1}: infinity is no value; correct it, or leave it empty to mean missing"
    )


def _row(at: int, rows: Sequence[int] | None) -> int:
    """The row as a reader of the file counts it: from 1, without the header."""
    return int(at if rows is None else rows[at]) + 1
