"""What the columns of a table are to a causal graph: numbers, two words, a scale of words, categories, or nothing.

Words become codes 0, 1, 2. Where they have no order, the column is nominal: its codes are only names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from veracausa.arrays import Array
from veracausa.data.causal.columns import NAMING
from veracausa.data.columns import NEARLY, numbers_of, numbers_or_words
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl


CATEGORIES = 20
"""A column of words with more different ones than this holds names, where nothing else is said."""
SHOWN = 6
"""So many words or columns a note names before it counts the others."""
_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([ T].*)?$"


@dataclass(frozen=True)
class Remedies:
    """What a user can do where a column was read otherwise than it was meant, for `{name}` and `{count}` words."""

    words: str = "say --set data.categorical={name}"
    scale: str = "name a column whose words are a scale by --set data.ordinal={name}"
    order: str = "; another order: --set data.ordinal='{{\"{name}\"=[{words}]}}'"
    many: str = "; if they are categories, --set data.categories={count} keeps it"
    refused: str = "leave {them} out of --party and data.columns{kept}, say --set data.id={name} if it names the rows"
    raised: str = ", or keep words as categories by --set data.categories={count}"


OF_FILES = Remedies(refused="leave {them} out of --set data.columns, say --set data.id={name} if it names the rows")
"""Where each party has its own file: the columns of all files are named together."""
IN_PYTHON = Remedies(
    words="make it categorical",
    scale="make a column whose words are a scale numbers, or an ordered category of pandas",
    order="",
    many="; if they are categories, number them and name it in `nominal`",
    refused="leave {them} out of `parties`",
    raised="",
)


@dataclass(frozen=True)
class Reading:
    """How columns are to be understood, as the settings `data.categories`, `data.categorical`, `data.ordinal` say."""

    categories: int = CATEGORIES
    categorical: tuple[str, ...] = ()
    """Columns of words, also where the words are numbers or dates."""
    ordinal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns whose words are a scale, with the words from low to high; none: in natural order."""
    remedies: Remedies = Remedies()

    def declared(self, name: str) -> bool:
        """Whether a user said that it holds words."""
        return name in self.categorical or name in self.ordinal


def attributes(
    frame: pl.DataFrame, where: str, reading: Reading, notes: list[str], rows: Sequence[int] | None = None
) -> tuple[str, ...]:
    """The columns that may have causes and effects; the others, and why they are left out, go to the notes.

    `rows` are the file's own row numbers from 0, for messages.
    """
    kept = []
    for column in frame:
        typed = _typed(column, where, reading, rows)
        reason = _no_attribute(typed, reading) or _row_number(typed)
        if reason is None:
            kept.append(column.name)
        else:
            many = _categories(typed, reading)
            more = reading.remedies.many.format(count=many) if many else ""
            notes.append(f"{column.name}: left out, it holds {reason}{more}")
    return tuple(kept)


def coded_columns(
    frame: pl.DataFrame,
    names: Sequence[str],
    where: str,
    reading: Reading,
    notes: list[str],
    rows: Sequence[int] | None = None,
) -> tuple[Array, tuple[str, ...]]:
    """These columns as numbers (n, d), nan where a value is missing, and the names of the nominal ones."""
    typed = [_typed(frame[name], where, reading, rows) for name in names]
    _refuse(typed, where, reading)
    values = np.full((frame.height, len(names)), np.nan)
    nominal: dict[str, list[str]] = {}
    for at, column in enumerate(typed):
        words = _words(column)
        if words is None:
            values[:, at] = column.cast(float).to_numpy()
            continue
        if column.name in reading.ordinal:
            words = _scale(column.name, words, where, reading, notes)
        elif len(words) > 2:
            nominal[column.name] = words
        elif len(words) == 2:
            notes.append(f"{column.name}: words numbered from 0: {', '.join(words)}")
        number = {word: float(code) for code, word in enumerate(words)}
        values[:, at] = [np.nan if word is None else number[word] for word in column.to_list()]
    if nominal:
        listed = some([f"{name} ({some(words)})" for name, words in nominal.items()])
        scale = reading.remedies.scale.format(name=next(iter(nominal)))
        notes.append(f"categories without an order: {listed}; {scale}")
    return values, tuple(nominal)


def some(words: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more


def natural_order(words: Sequence[str]) -> list[str]:
    """By the alphabet, with the numbers in them by size: grade 2, grade 10."""

    def key(word: str) -> list[tuple[int, float, str]]:
        parts = re.split(r"(\d+(?:\.\d+)?)", word)
        return [(0, float(part), "") if at % 2 else (1, 0.0, part) for at, part in enumerate(parts) if part]

    return sorted(words, key=lambda word: (key(word), word))


def _typed(column: pl.Series, where: str, reading: Reading, rows: Sequence[int] | None) -> pl.Series:
    """A column of words as numbers where they are meant as numbers; a stray word among them is refused."""
    import polars as pl

    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        column = column.cast(pl.String)
        if reading.ordinal.get(column.name) == () and numbers_of(column).null_count() == column.null_count():
            return numbers_of(column)  # the scale that numbers are without anybody's word
        return column
    if column.dtype == pl.String and column.null_count() < len(column) and not reading.declared(column.name):
        declare = f"or, if the column holds words, {reading.remedies.words.format(name=column.name)}"
        numbers = numbers_or_words(column, where, rows, declare)
        return column if numbers is None else numbers
    return column.fill_nan(None) if column.dtype.is_float() else column


def _words(column: pl.Series) -> list[str] | None:
    """The different words of a column, None where it holds no words."""
    import polars as pl

    return natural_order(column.drop_nulls().unique().to_list()) if column.dtype == pl.String else None


def _no_attribute(column: pl.Series, reading: Reading) -> str | None:
    """Why a column can not be read as numbers; None: it can."""
    import polars as pl

    if column.null_count() == len(column):
        return "no value at all"
    if column.dtype.is_temporal():
        return f"dates or times, such as {str(column.drop_nulls()[0])!r}"
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return None
    if column.dtype != pl.String:
        return f"values of the type {column.dtype}, not numbers"
    known = column.drop_nulls()
    if _dates(column, reading):
        return f"dates, such as {known[0]!r}"
    if _too_many(column, reading):
        return f"{known.n_unique()} different words, such as {known.min()!r}"
    return None


def _too_many(column: pl.Series, reading: Reading) -> bool:
    """Whether a column holds more different words than there are to be categories."""
    words = _words(column) or ()
    return len(words) > reading.categories and column.name not in reading.ordinal


def _categories(column: pl.Series, reading: Reading) -> int:
    """How many different words a column has, if they are too many and may still be categories; else 0."""
    different = column.drop_nulls().n_unique() if _too_many(column, reading) and not _dates(column, reading) else 0
    return different if 2 * different <= len(column) else 0


def _dates(column: pl.Series, reading: Reading) -> bool:
    known = column.drop_nulls()
    return not reading.declared(column.name) and known.str.strip_chars().str.contains(_DATE).sum() >= NEARLY * len(
        known
    )


def _row_number(column: pl.Series) -> str | None:
    """Why a column of numbers only numbers the rows; None: it does not."""
    if not column.dtype.is_integer() or len(column) < NAMING or column.null_count():
        return None
    values = column.to_numpy()
    first, last = int(values[0]), int(values[-1])
    counted = last - first == len(values) - 1 and bool((np.diff(values) == 1).all())
    return f"the numbers of the rows, {first} to {last}" if counted else None


def _refuse(typed: Sequence[pl.Series], where: str, reading: Reading) -> None:
    """Name every column that was asked for and can be no attribute, all in one sentence."""
    wrong = {column.name: reason for column in typed if (reason := _no_attribute(column, reading)) is not None}
    if not wrong:
        return
    held = some([f"{name} ({reason})" for name, reason in wrong.items()])
    good = [column.name for column in typed if column.name not in wrong]
    kept = f" (--set data.columns={','.join(good)})" if 0 < len(good) <= 2 * SHOWN else ""
    them = "them" if len(wrong) > 1 else "it"
    remedy = reading.remedies.refused.format(them=them, kept=kept, name=next(iter(wrong)))
    words = [many for column in typed if (many := _categories(column, reading))]
    raised = reading.remedies.raised.format(count=max(words)) if words else ""
    no = "no attribute" if len(wrong) == 1 else "no attributes"
    raise InputError(f"{where}: {held} can be {no}; {remedy}{raised}")


def _scale(name: str, words: list[str], where: str, reading: Reading, notes: list[str]) -> list[str]:
    """The words of an ordinal column from low to high."""
    given = reading.ordinal[name]
    if not given:
        quoted = ", ".join(f'"{word}"' for word in words)
        another = reading.remedies.order.format(name=name, words=quoted) if len(words) > 2 else ""
        notes.append(f"{name}: a scale of words from 0: {', '.join(words)}{another}")
        return words
    unknown = [word for word in words if word not in given]
    if unknown or len(set(given)) < len(given):
        fault = f"lacks {some([repr(word) for word in unknown])}" if unknown else "has a word twice"
        raise InputError(
            f"{where}: data.ordinal: the order of {name!r} {fault}; name every word once, from low to high"
        )
    notes.append(f"{name}: a scale of words from 0: {', '.join(given)}")
    return list(given)
