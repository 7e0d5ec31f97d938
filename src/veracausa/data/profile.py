"""What a party's columns are and what was done to each: for the party's own report, and for nobody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veracausa.data.number_words import share_of_numbers

if TYPE_CHECKING:
    import polars as pl

MANY = 20
"""A category with more different values than this is worth a note."""
_MIXED = 0.5


def profile(
    frame: pl.DataFrame, fitted: Mapping[str, Any] | None, aside: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], ...]:
    """One entry a column, plain JSON; `frame` are the training rows, `aside` the columns that are no features."""
    rows = [_column(frame[column["name"]], column) for column in (fitted or {"columns": ()})["columns"]]
    for name, what in (aside or {}).items():
        missing, distinct = _counts(frame[name])
        rows.append({"name": name, "type": what, "missing": missing, "distinct": distinct, "done": _ASIDE[what]})
    return tuple(rows)


_ASIDE = {"id": "names the rows", "label": "what is predicted", "left out": "left out"}


def remarks(party: str, columns: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What is unusual about a party's columns, in one sentence each kind."""
    said = []
    constant = [str(column["name"]) for column in columns if column["type"] == "constant"]
    if constant:
        said.append(f"party {party}: {_named(constant)} constant in the training rows and left out")
    for column in columns:
        what = f"party {party}: column {column['name']!r}"
        if column.get("numbers"):
            said.append(
                f"{what}: {100 * column['numbers']:.0f} % of its values are numbers, the others words such as "
                f"{column['word']!r}; it is taken as a category"
            )
        elif column["type"] == "category" and column["distinct"] > MANY:
            said.append(f"{what} is a category of {column['distinct']} different values: {column['done']}")
    return tuple(said)


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"column {shown} is" if len(names) == 1 else f"columns {shown} are"


def _column(series: pl.Series, column: Mapping[str, Any]) -> dict[str, Any]:
    missing, distinct = _counts(series)
    entry: dict[str, Any] = {"name": column["name"], "type": "number", "missing": missing, "distinct": distinct}
    if column["kind"] == "constant":
        return {**entry, "type": "constant", "done": "left out: it has one value" if distinct else "left out: empty"}
    marked = ", a missing value counts as the mean and is marked in a 0/1 column" if column["missing"] else ""
    if column["kind"] == "numeric":
        kind = "date" if series.dtype.is_temporal() else "binary" if distinct == 2 else "number"
        return {**entry, "type": kind, "done": f"standardised{marked}"}
    entry |= {"type": "binary" if distinct == 2 and not missing else "category", "done": _one_hot(column)}
    share = share_of_numbers(series)
    if share >= _MIXED and _is_text(series):
        entry |= {"numbers": share, "word": _first_word(series)}
    return entry


def _one_hot(column: Mapping[str, Any]) -> str:
    values = len(column["values"])
    columns = values + bool(column["other"]) + bool(column["missing"])
    parts = [f"the {values} commonest values" if column["other"] else f"{values} values"]
    parts += ["one column for all others"] if column["other"] else []
    parts += ["one for missing"] if column["missing"] else []
    return f"one-hot into {columns} columns" + (f" ({', '.join(parts)})" if len(parts) > 1 else "")


def _is_text(series: pl.Series) -> bool:
    """Whether it is text that nobody declared to be a category."""
    import polars as pl

    return series.dtype == pl.String


def _first_word(series: pl.Series) -> str:
    known = series.drop_nulls()
    words = known.filter(known.str.strip_chars().cast(float, strict=False).is_null())
    return str(words[0]) if len(words) else str(known[0])


def _counts(series: pl.Series) -> tuple[int, int]:
    """How many values are missing, and how many different ones there are."""
    known = series.drop_nulls()
    if known.dtype.is_float():
        known = known.drop_nans()
    return len(series) - len(known), known.n_unique()
