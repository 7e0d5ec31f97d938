"""Preprocessing learnt from rows that come a piece at a time: what `preprocessing.fit` finds, from sums and counts.

Mean and spread are those of all rows up to rounding. Words are counted exactly, also in a column with more different
words than are kept at a time. The number of different values is exact up to `SKETCH`, and an estimate beyond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.arrays import Array
from veracausa.data import preprocessing
from veracausa.data.columns import NEARLY, count_of_numbers, described, fault, numbers_of, set_aside
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from veracausa.data.blocks import RowFile


MOST_WORDS = 1 << 16
"""Different words of a column that are counted at a time."""
SKETCH = 4096
_SPACE = 2.0**64

Pieces = Callable[[], Iterator[tuple[Sequence[int], "pl.DataFrame"]]]
"""Goes through the rows again each time: the numbers of a piece's rows in the file, from 0, and the piece."""


class RunningMoments:
    """Count, mean and spread of numbers that come in pieces (Chan, Golub and LeVeque 1983)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0
        self.first: float | None = None
        self.varies = False

    def add(self, values: Array) -> None:
        """More numbers, none of them missing."""
        if not len(values):
            return
        if self.first is None:
            self.first = float(values[0])
        self.varies = self.varies or bool((values != self.first).any())
        count = self.count + len(values)
        # Too large numbers give infinity here, and are refused with the column's name.
        with np.errstate(over="ignore", invalid="ignore"):
            here = float(values.mean())
            delta = here - self.mean
            self.squares += float(((values - here) ** 2).sum()) + delta**2 * self.count * len(values) / count
            self.mean += delta * len(values) / count
        self.count = count

    @property
    def std(self) -> float:
        return float(np.sqrt(self.squares / self.count)) if self.count else 1.0


class DistinctCount:
    """How many different values there are, by the smallest of their hashes: exact up to `SKETCH` of them."""

    def __init__(self) -> None:
        self._smallest = np.empty(0, dtype=np.uint64)

    def add(self, series: pl.Series) -> None:
        """More values, none of them missing."""
        hashes = series.hash(0)
        if len(self._smallest) == SKETCH:
            hashes = hashes.filter(hashes < int(self._smallest[-1]))
        if len(hashes):
            few = hashes.unique().bottom_k(SKETCH).to_numpy()
            self._smallest = np.unique(np.concatenate([self._smallest, few]))[:SKETCH]

    @property
    def count(self) -> int:
        if len(self._smallest) < SKETCH:
            return len(self._smallest)
        return round((SKETCH - 1) * _SPACE / float(self._smallest[-1]))


class WordCounts:
    """How often each word stands. Beyond `MOST_WORDS` different ones the rarest are dropped (Misra and Gries 1982):
    whatever stands in more than one of `MOST_WORDS` rows is kept, and wants a second count to be exact."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.exact = True

    def add(self, words: pl.Series) -> None:
        """More words, none of them missing."""
        self.counts.update(dict(words.value_counts(sort=False).iter_rows()))
        if len(self.counts) > MOST_WORDS:
            self.exact = False
            least = sorted(self.counts.values(), reverse=True)[MOST_WORDS]
            self.counts = Counter({word: count - least for word, count in self.counts.items() if count > least})


class ColumnSums:
    """What one column is, from its pieces."""

    def __init__(
        self,
        name: str,
        dtype: pl.DataType,
        declared: bool,
        typed: bool,
        where: str,
        declare: str = preprocessing.DECLARE,
    ) -> None:
        import polars as pl

        self.name, self.dtype, self.where, self.declare = name, dtype, where, declare
        self.numeric = not declared and (dtype.is_numeric() or dtype.is_temporal())
        self.text = not declared and dtype == pl.String
        """Text that may be numbers: that depends on all of it."""
        self.typed = typed
        if not self.numeric and not declared:
            preprocessing.check_words(name, dtype, where)
        self.rows = self.missing = 0
        self.moments, self.distinct, self.words = RunningMoments(), DistinctCount(), WordCounts()
        self.known = self.any_numbers = self.numbers = 0
        self.wrong: tuple[int, str] | None = None
        """Row and value of the first text that is no number."""
        self.infinite: int | None = None
        """Row of the first text that says infinity."""

    def add(self, series: pl.Series, rows: Sequence[int]) -> None:
        import polars as pl

        self.rows += len(series)
        if self.numeric:
            values = preprocessing.numbers_in(series, self.where, rows)
            there = ~np.isnan(values)
            self.missing += len(values) - int(there.sum())
            self.moments.add(values[there])
            self.distinct.add(pl.Series(values[there]))
            return
        written = series.cast(pl.String)
        known = written.drop_nulls()
        self.missing += written.null_count()
        self.words.add(known)
        self.distinct.add(known)
        if self.text:
            numbers = numbers_of(written)
            self.known += len(known)
            self.any_numbers += count_of_numbers(written)
            self.numbers += len(numbers) - numbers.null_count()
            lost = (numbers.is_null() & written.is_not_null()).arg_true()
            if len(lost) and self.wrong is None:
                self.wrong = int(rows[int(lost[0])]), str(series[int(lost[0])])
            values = numbers.fill_null(np.nan).to_numpy()
            infinite = np.flatnonzero(np.isinf(values))
            if len(infinite) and self.infinite is None:
                self.infinite = int(rows[int(infinite[0])])
            self.moments.add(values[np.isfinite(values)])

    @property
    def is_numeric(self) -> bool:
        """Whether it counts as numbers; a word among numbers is refused with its row."""
        if not self.text or not self.known or self.any_numbers / self.known < NEARLY:
            return self.numeric
        if self.wrong is None:
            if self.infinite is not None and not self.typed:
                raise InputError(preprocessing.infinity(self.name, self.infinite, self.where))
            return not self.typed  # whoever wrote a typed file chose text for these numbers
        row, value = self.wrong
        counted = f"{self.numbers} of its {self.known} values are numbers"
        raise InputError(f"{self.where}: column {self.name!r}, row {row + 1}: {fault(value, counted)}; {self.declare}")

    def check_numbers(self) -> None:
        """Refuse a word among numbers."""
        _ = self.is_numeric

    def fitted(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """The column's entry in the preprocessing; `counts` are exact ones of its commonest words."""
        if not self.is_numeric:
            entry = preprocessing.word_column(self.name, counts, self.missing > 0)
            # What was dropped on the way stands in no count, and yet some rows hold it.
            return {**entry, "other": True} if not self.words.exact and entry["kind"] == "categorical" else entry
        if not self.moments.count or (not self.missing and not self.moments.varies):
            return preprocessing.constant_column(self.name)
        return preprocessing.numeric_column(
            self.name, self.moments.mean, self.moments.std, self.missing > 0, self.where
        )

    def profile(self, fitted: Mapping[str, Any]) -> dict[str, Any]:
        share = self.any_numbers / self.known if self.text and self.known else 0.0
        word = self.wrong[1] if self.wrong else next(iter(self.words.counts), "")
        dates = self.dtype.is_temporal()
        return described(fitted, self.missing, self.distinct.count, dates, share if self._mixed else 0.0, word)

    @property
    def _mixed(self) -> bool:
        return self.text and not (self.typed and self.wrong is None)


def fit_pieces(
    file: RowFile, pieces: Pieces, columns: Sequence[str], aside: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """The preprocessing of these columns and the profile of them and of the columns `aside`, in one pass or two."""
    sums = {
        name: ColumnSums(name, file.schema[name], name in file.categorical, file.typed, str(file.path))
        for name in columns
    }
    others = {name: _Aside() for name in aside or {}}
    for rows, frame in pieces():
        for name, column in sums.items():
            column.add(frame[name], rows)
        for name, other in others.items():
            other.add(frame[name])
    exact = _counted_again(pieces, [column for column in sums.values() if not column.words.exact])
    fitted = [column.fitted(exact.get(name, column.words.counts)) for name, column in sums.items()]
    profile = [sums[entry["name"]].profile(entry) for entry in fitted]
    profile += [
        set_aside(name, (aside or {})[name], other.missing, other.distinct.count) for name, other in others.items()
    ]
    return {"version": 1, "columns": fitted}, tuple(profile)


class _Aside:
    def __init__(self) -> None:
        self.missing, self.distinct = 0, DistinctCount()

    def add(self, series: pl.Series) -> None:
        known = series.drop_nulls()
        if known.dtype.is_float():
            known = known.drop_nans()
        self.missing += len(series) - len(known)
        self.distinct.add(known)


def _counted_again(pieces: Pieces, columns: Sequence[ColumnSums]) -> dict[str, Counter[str]]:
    """Exact counts of the words that were left at the end of the first pass."""
    import polars as pl

    found: dict[str, Counter[str]] = {column.name: Counter() for column in columns}
    for _, frame in pieces() if columns else ():
        for column in columns:
            words = frame[column.name].cast(pl.String).drop_nulls()
            counts = words.filter(words.is_in(list(column.words.counts))).value_counts(sort=False)
            found[column.name].update(dict(counts.iter_rows()))
    return found
