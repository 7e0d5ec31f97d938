"""Tables in files, CSV or Parquet, as frames whose mistakes are named with their place."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "NA", "NaN", "nan", "null", "NULL", "?")


def read_table(
    path: Path, separator: str = ",", missing: Sequence[str] = MISSING, text: Sequence[str] = ()
) -> pl.DataFrame:
    """All rows of a file: Parquet by its suffix, anything else CSV. The `text` columns stay as they are written."""
    import polars as pl

    if not path.is_file():
        raise InputError(f"{path}: no such file; correct the path")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: is empty; it needs a header and rows")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            frame = pl.read_parquet(path)
        else:
            frame = pl.read_csv(
                path,
                separator=separator,
                null_values=list(missing),
                schema_overrides=dict.fromkeys(text, pl.String),
                infer_schema_length=None,
            )
            _check_header(path, frame.columns, separator)
            _check_last_line(path, separator, len(frame.columns))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from None
    except pl.exceptions.PolarsError as error:
        reason = str(error).split("\n")[0]
        place = "" if path.suffix.lower() in (".parquet", ".pq") else _first_long_line(path, separator)
        raise InputError(f"{path}: cannot be read as a table: {place or reason}; repair the file") from None
    if frame.height == 0:
        raise InputError(f"{path}: has a header but no rows; add rows")
    return frame


def _check_header(path: Path, columns: Sequence[str], separator: str) -> None:
    for name in columns:
        base, found, _ = name.rpartition("_duplicated_")
        if found and base in columns:
            raise InputError(f"{path}: two columns are named {base!r}; rename one")
    if len(columns) == 1:
        for other in ",;\t|":
            if other != separator and other in columns[0]:
                raise InputError(f"{path}: one column only, {columns[0]!r}; set data.separator = {other!r}")


def _check_last_line(path: Path, separator: str, columns: int) -> None:
    """A file cut short ends in a line with too few fields, which a CSV reader would take for missing values."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 16)))
        lines = file.read().splitlines()
    last = lines[-1].decode("utf-8", errors="replace") if lines else ""
    # A quote may enclose line ends: then this is no whole record.
    if '"' in last or not last or (fields := last.count(separator) + 1) >= columns:
        return
    with path.open("rb") as file:
        number = sum(1 for _ in file)
    raise InputError(
        f"{path}: line {number} has {fields} of {columns} fields: the file is cut short; get it whole again"
    )


def _first_long_line(path: Path, separator: str) -> str:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        try:
            columns = len(next(reader))
            for record in reader:
                if len(record) > columns:
                    return f"line {reader.line_num} has {len(record)} fields, the header {columns}"
        except (csv.Error, StopIteration):
            return ""
    return ""
