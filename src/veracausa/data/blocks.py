"""Tables that never lie in memory as a whole: Parquet and CSV files, read a piece of consecutive rows at a time.

A CSV file is gone through once when it is opened: its columns' types are those that a reader of the whole file would
find, and the place of every piece is kept, so that a piece can be read without those before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from veracausa.data.array_files import is_array_file
from veracausa.data.table_files import (
    GZIP,
    MISSING,
    PARQUET,
    check_file,
    check_header,
    check_last_line,
    check_text,
    csv_fault,
    header_names,
    is_parquet,
)
from veracausa.errors import InputError, RunError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl


PIECE_ROWS = 1 << 16
"""At most so many rows are read at a time, fewer of a wide table."""
PIECE_VALUES = 1 << 22
"""At most so many values: 32 MiB of numbers."""
PIECE_BYTES = 4 << 20
"""Of a CSV file."""
_HEADER = 1 << 20
_LONGEST = 64 << 20
"""A record of a CSV file that is longer is taken for a quote that was never closed."""


@dataclass(frozen=True)
class RowFile(ABC):
    """A table in a file: its columns and the number of its rows are known, its rows are read when they are wanted."""

    path: Path
    schema: Mapping[str, pl.DataType]
    """Column -> type, as `read_table` would give it, but that declared words are text here."""
    rows: int
    categorical: frozenset[str]
    """Columns that are declared to be words."""
    stamp: tuple[int, int]
    """The file's size and when it was last changed."""

    @property
    def typed(self) -> bool:
        """Whether its writer chose the types: then text is meant as text, also where it holds numbers only."""
        return False

    @property
    def columns(self) -> list[str]:
        return list(self.schema)

    def pieces(self, columns: Sequence[str], start: int = 0) -> Iterator[tuple[int, pl.DataFrame]]:
        """These columns from row `start` on, in order: the number of a piece's first row, counted from 0, and it."""
        import polars as pl

        if _stamp(self.path) != self.stamp:
            raise RunError(f"{self.path}: has changed since it was opened; leave it as it is and start again")
        if not columns:
            for first in range(start, self.rows, PIECE_ROWS):
                yield first, pl.DataFrame({"row": range(first, min(first + PIECE_ROWS, self.rows))})
            return
        yield from self._pieces(list(columns), start)

    @abstractmethod
    def _pieces(self, columns: list[str], start: int) -> Iterator[tuple[int, pl.DataFrame]]: ...


@dataclass(frozen=True)
class ParquetRows(RowFile):
    """Pieces of a Parquet file; only the row groups and columns that a piece needs are decoded."""

    @property
    def typed(self) -> bool:
        return True

    def _pieces(self, columns: list[str], start: int) -> Iterator[tuple[int, pl.DataFrame]]:
        import polars as pl

        step = max(1, min(PIECE_ROWS, PIECE_VALUES // len(columns)))
        lazy = pl.scan_parquet(self.path, glob=False).select(columns)
        for first in range(start, self.rows, step):
            try:
                piece = lazy.slice(first, step).collect()
            except (pl.exceptions.PolarsError, OSError) as error:
                raise _unreadable(self.path, error) from None
            yield first, piece


@dataclass(frozen=True)
class CsvRows(RowFile):
    """Pieces of a CSV file, cut at the ends of records."""

    separator: str
    missing: tuple[str, ...]
    starts: tuple[int, ...] = field(repr=False)
    """The first row of every piece."""
    offsets: tuple[int, ...] = field(repr=False)
    """Where each piece begins in the file; one more than pieces, the last is the file's end."""

    def _pieces(self, columns: list[str], start: int) -> Iterator[tuple[int, pl.DataFrame]]:
        if start >= self.rows:
            return
        at = bisect_right(self.starts, start) - 1
        with self.path.open("rb") as file:
            file.seek(self.offsets[at])
            for number in range(at, len(self.starts)):
                content = file.read(self.offsets[number + 1] - self.offsets[number])
                frame = _parsed(content, self.separator, self.missing, dict(self.schema)).select(columns)
                first, skip = self.starts[number], max(0, start - self.starts[number])
                yield first + skip, frame[skip:]


@dataclass(frozen=True)
class StreamedTable:
    """A file whose rows are streamed, and the column that names them; without one, the row's number from 1 does."""

    file: RowFile
    id: str | None = None

    def __post_init__(self) -> None:
        if self.id is not None:
            self.require(self.id, "the id")

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def columns(self) -> list[str]:
        return self.file.columns

    @property
    def rows(self) -> int:
        return self.file.rows

    def require(self, column: str, what: str) -> None:
        """Refuse a file that lacks the column."""
        if column not in self.file.schema:
            raise InputError(f"{self.path}: no column {column!r} for {what}{did_you_mean(column, self.columns)}")


def open_rows(
    path: Path,
    separator: str = ",",
    missing: Sequence[str] = MISSING,
    text: Sequence[str] = (),
    *,
    categorical: Sequence[str] = (),
    decimal: str = ".",
    thousands: str = "",
    encoding: str = "utf-8",
) -> RowFile:
    """A file as `read_table` takes it, opened to be read in pieces; refused with the same sentences."""
    head = check_file(path)
    words = (*text, *categorical)
    try:
        if is_parquet(path):
            return _open_parquet(path, head, frozenset(categorical))
        if is_array_file(path):
            raise InputError(f"{path}: arrays are not streamed; leave data.stream out, or save the file as Parquet")
        for setting, value, usual in (("decimal", decimal, "."), ("thousands", thousands, "")):
            if value != usual:
                raise InputError(
                    f"{path}: data.{setting} = {value!r} needs the whole file in memory; "
                    "leave data.stream out, or save the file as Parquet"
                )
        _check_plain(path, head, encoding)
        return _open_csv(path, separator, tuple(missing), words, frozenset(categorical))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from None


def _open_parquet(path: Path, head: bytes, categorical: frozenset[str]) -> ParquetRows:
    import polars as pl

    if not head.startswith(PARQUET):
        raise InputError(f"{path}: is no Parquet file; give a CSV file a name that ends in .csv")
    stamp = _stamp(path)
    try:
        lazy = pl.scan_parquet(path, glob=False)
        schema = dict(lazy.collect_schema())
        rows = int(lazy.select(pl.len()).collect().item())
    except pl.exceptions.PolarsError as error:
        raise _unreadable(path, error) from None
    if not rows:
        raise InputError(f"{path}: has a header but no rows; add rows")
    return ParquetRows(path, schema, rows, categorical, stamp)


def _check_plain(path: Path, head: bytes, encoding: str) -> None:
    packed = head.startswith(GZIP)
    if not packed:
        check_text(path, head, encoding)
    if packed or encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig", "ascii"):
        what = "is compressed with gzip" if packed else f"is written in {encoding}"
        raise InputError(f"{path}: {what}, and data.stream reads plain UTF-8; unpack or save it so, or as Parquet")


def _open_csv(
    path: Path, separator: str, missing: tuple[str, ...], text: Sequence[str], categorical: frozenset[str]
) -> CsvRows:
    import polars as pl

    def opened() -> IO[bytes]:
        return path.open("rb")

    names, stamp = header_names(opened(), separator), _stamp(path)
    check_header(path, names, separator, opened)
    seen: dict[str, set[Any]] = {name: set() for name in names}
    starts, offsets, rows = [], [], 0
    try:
        for offset, content in _records(path):
            offsets.append(offset)
            starts.append(rows)
            frame = _parsed(content, separator, missing, dict.fromkeys(names), tuple(text))
            rows += frame.height
            for column in frame.iter_columns():
                if column.null_count() < len(column):
                    seen[column.name].add(column.dtype)
    except pl.exceptions.PolarsError as error:
        raise csv_fault(path, opened, separator, error) from None
    if not rows:
        raise InputError(f"{path}: has a header but no rows; add rows")
    check_last_line(path, opened(), separator, len(names))
    schema = {name: _joint_type(types) for name, types in seen.items()}
    return CsvRows(path, schema, rows, categorical, stamp, separator, missing, tuple(starts), (*offsets, stamp[0]))


def _joint_type(types: set[Any]) -> pl.DataType:
    """The type that holds values of all these, as a reader of the whole file finds it."""
    import polars as pl

    if len(types) == 1:
        found: pl.DataType = next(iter(types))
        return found
    if types and all(kind.is_numeric() for kind in types):
        return pl.Float64() if any(kind.is_float() for kind in types) else pl.Int128()
    return pl.String()


def _parsed(
    content: bytes, separator: str, missing: Sequence[str], schema: Mapping[str, Any], text: Sequence[str] = ()
) -> pl.DataFrame:
    """Records without a header; a type that is None is inferred from all of them."""
    import polars as pl

    known = {name: kind for name, kind in schema.items() if kind is not None}
    given: dict[str, Any] = {"schema": known} if known else {"infer_schema_length": None}
    if not known:
        # Without a header the reader counts columns by the first record, which may be a short one.
        numbered = {f"column_{at}": name for at, name in enumerate(schema, 1)}
        given["schema_overrides"] = {number: pl.String for number, name in numbered.items() if name in text}
        header = separator.join(numbered) + "\n"
        frame = pl.read_csv(header.encode() + content, separator=separator, null_values=list(missing), **given)
        return frame.rename(numbered)
    return pl.read_csv(content, has_header=False, separator=separator, null_values=list(missing), **given)


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Whole records below the header, some MiB at a time, each with its place in the file."""
    with path.open("rb") as file:
        at, rest = _after_header(file), b""
        file.seek(at)
        while more := file.read(PIECE_BYTES):
            rest += more
            if cut := _last_end(rest):
                yield at, rest[:cut]
                at, rest = at + cut, rest[cut:]
            elif len(rest) > _LONGEST:
                raise InputError(
                    f"{path}: a quote behind byte {at} is not closed for {_LONGEST >> 20} MiB; repair the file"
                )
        if rest:
            yield at, rest


def _after_header(file: IO[bytes]) -> int:
    """Where the first record begins."""
    head = file.read(_HEADER)
    start = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    while head[start : start + 1] in (b"\r", b"\n"):
        start += 1
    quoted = False
    for at in range(start, len(head)):
        if head[at] == ord('"'):
            quoted = not quoted
        elif head[at] == ord("\n") and not quoted:
            return at + 1
    return len(head)


def _last_end(content: bytes) -> int:
    """Behind the last line end that no quote encloses; 0: there is none."""
    if b'"' not in content:
        return content.rfind(b"\n") + 1
    codes = np.frombuffer(content, dtype=np.uint8)
    outside = np.logical_xor.accumulate(codes == ord('"')) == 0
    ends = np.flatnonzero((codes == ord("\n")) & outside)
    return int(ends[-1]) + 1 if len(ends) else 0


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise RunError(f"{path}: cannot be read any more: {error.strerror or error}; put it back") from None
    return found.st_size, found.st_mtime_ns


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = str(error).split("\n")[0]
    return InputError(f"{path}: cannot be read as a table: {reason}; repair the file")
