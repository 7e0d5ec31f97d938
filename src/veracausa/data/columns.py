"""What the columns of a table are: numbers, nearly numbers or words, and a profile of each for the party's own report.

What a word among numbers means is asked, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl


NEARLY = 0.9
"""From this share of numbers on, a column is one of numbers, and another word in it is a mistake."""
_COMMA = r"^[+-]?\d+,\d+$"
_THOUSANDS = r"^[+-]?\d{1,3}([,.' \u00a0\u202f]\d{3})+([.,]\d+)?$"
_SIGNED = r"^([€$£]\s*[+-]?\d[\d.,' ]*|[+-]?\d[\d.,' ]*\s*[%€$£])$"


def numbers_of(words: pl.Series) -> pl.Series:
    """float64, null where a word is no number; white space around it does not count."""
    import polars as pl

    return words.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)


def share_of_numbers(words: pl.Series) -> float:
    """How many of the words that are there are numbers, in any writing."""
    known = len(words) - words.null_count()
    return count_of_numbers(words) / known if known else 0.0


def count_of_numbers(words: pl.Series) -> int:
    """How many words are numbers, in any writing."""
    import polars as pl

    known = words.cast(pl.String).drop_nulls().str.strip_chars()
    numbers = known.cast(pl.Float64, strict=False).is_not_null()
    for pattern in (_COMMA, _THOUSANDS, _SIGNED):
        numbers = numbers | known.str.contains(pattern)
    return int(numbers.sum())


def numbers_or_words(words: pl.Series, where: str, rows: Sequence[int] | None, declare: str) -> pl.Series | None:
    """A column's words as numbers, or None where they are words; a word among numbers is refused with its row.

    `declare` says where a user can write that the column is meant as words, or how else to say it.
    """
    share = share_of_numbers(words)
    if share < NEARLY:
        return None
    numbers = numbers_of(words)
    wrong = (numbers.is_null() & words.is_not_null()).arg_true()
    if not len(wrong):
        return numbers
    at = int(wrong[0])
    known = len(words) - words.null_count()
    counted = f"{known - len(wrong)} of its {known} values are numbers"
    row = (at if rows is None else int(rows[at])) + 1
    value = str(words[at])
    raise InputError(f"{where}: column {words.name!r}, row {row}: {fault(value, counted)}; {declare}")


def fault(value: str, counted: str = "") -> str:
    """What keeps a word from being a number, and how to mend it."""
    word = value.strip()
    comma, thousands = re.match(_COMMA, word), re.match(_THOUSANDS, word)
    if comma and thousands:
        return (
            f"{value!r} has a decimal comma, or a comma between thousands; set data.decimal = ',' for the one, "
            "data.thousands = ',' for the other"
        )
    if comma:
        return f"{value!r} has a decimal comma; set data.decimal = ','"
    if thousands:
        mark, point = thousands[1][0], thousands[2]
        decimal = " and data.decimal = ','" if (point or "").startswith(",") else ""
        return f"{value!r} has a mark between thousands; set data.thousands = {mark!r}{decimal}"
    if re.match(_SIGNED, word):
        return f"{value!r} has a sign beside the number; take it out"
    because = f", while {counted}" if counted else ""
    return f"{value!r} is no number{because}; correct it, leave it empty, or add it to data.missing if it means missing"


def in_plain_form(words: pl.Series, decimal: str, thousands: str, where: str) -> pl.Series:
    """A column with `decimal` and `thousands` marks of its own, its numbers in plain form; a whole one as numbers."""
    import polars as pl

    between = re.escape(thousands)
    whole = rf"(\d{{1,3}}({between}\d{{3}})+|\d+)" if thousands else r"\d+"
    pattern = rf"^[+-]?{whole}({re.escape(decimal)}\d+)?([eE][+-]?\d+)?$"
    known = words.str.strip_chars()
    fits = known.str.contains(pattern).fill_null(False)
    plain = known.str.replace_all(thousands, "", literal=True) if thousands else known
    plain = plain.str.replace_all(decimal, ".", literal=True)
    # What reads as a number in the plain writing alone would be another number in this one.
    other = (~fits & known.cast(pl.Float64, strict=False).is_not_null() & known.str.contains(r"[.,]")).arg_true()
    if len(other) and share_of_numbers(words) >= NEARLY:
        at = int(other[0])
        hint = "set data.thousands = '.' if it stands between thousands" if not thousands else "correct it"
        raise InputError(
            f"{where}: column {words.name!r}, row {at + 1}: {words[at]!r} is no number "
            f"with data.decimal = {decimal!r}; {hint}"
        )
    frame = pl.DataFrame({"fits": fits, "plain": plain, "words": words})
    mended = frame.select(pl.when(pl.col("fits")).then(pl.col("plain")).otherwise(pl.col("words"))).to_series()
    mended = mended.rename(words.name)
    if not bool(fits.any()) or mended.cast(pl.Float64, strict=False).null_count() > words.null_count():
        return mended
    integers = mended.cast(pl.Int64, strict=False)
    return integers if integers.null_count() == words.null_count() else mended.cast(pl.Float64)


MANY = 20
"""A category with more different values than this is worth a note."""
_MIXED = 0.5


def profile(
    frame: pl.DataFrame, fitted: Mapping[str, Any] | None, aside: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], ...]:
    """One entry a column, plain JSON; `frame` are the training rows, `aside` the columns that are no features."""
    rows = [_column(frame[column["name"]], column) for column in (fitted or {"columns": ()})["columns"]]
    rows += [set_aside(name, what, *_counts(frame[name])) for name, what in (aside or {}).items()]
    return tuple(rows)


def set_aside(name: str, what: str, missing: int, distinct: int) -> dict[str, Any]:
    """The entry of a column that is no feature."""
    return {"name": name, "type": what, "missing": missing, "distinct": distinct, "done": _ASIDE[what]}


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
    share = share_of_numbers(series) if _is_text(series) else 0.0
    word = _first_word(series) if share >= _MIXED else ""
    return described(column, missing, distinct, series.dtype.is_temporal(), share, word)


def described(
    column: Mapping[str, Any], missing: int, distinct: int, dates: bool = False, numbers: float = 0.0, word: str = ""
) -> dict[str, Any]:
    """One entry of a profile: what a fitted column is and what was done to it, by what was counted in it.

    `numbers` is the share of numbers in undeclared text, and `word` the first that is none.
    """
    entry: dict[str, Any] = {"name": column["name"], "type": "number", "missing": missing, "distinct": distinct}
    if column["kind"] == "constant":
        return {**entry, "type": "constant", "done": "left out: it has one value" if distinct else "left out: empty"}
    marked = ", a missing value counts as the mean and is marked in a 0/1 column" if column["missing"] else ""
    if column["kind"] == "numeric":
        kind = "date" if dates else "binary" if distinct == 2 else "number"
        return {**entry, "type": kind, "done": f"standardised{marked}"}
    entry |= {"type": "binary" if distinct == 2 and not missing else "category", "done": _one_hot(column)}
    if numbers >= _MIXED:
        entry |= {"numbers": numbers, "word": word}
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
