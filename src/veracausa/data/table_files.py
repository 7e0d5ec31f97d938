"""What a file is that was given as a table: its first bytes say it, whatever its name."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import logging
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from veracausa.data.array_files import ROW, is_array_file, read_arrays, table_of_arrays
from veracausa.data.columns import in_plain_form, numbers_of
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl


_log = logging.getLogger(__name__)

GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
_SAVE = "save it as CSV or Parquet"
_PACKED = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
}
_OTHERS = {
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Excel workbook or another Office file",
    b"%PDF": "a PDF",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"ARROW1": "a Feather file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
}
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\v\x1b")
_HEAD = 1 << 16


def is_parquet(path: Path) -> bool:
    """Whether the name says that it is Parquet."""
    return path.suffix.lower() in (".parquet", ".pq")


def check_file(path: Path) -> bytes:
    """The first bytes of a file that is there and not empty."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the file in it that holds the table")
    if not path.is_file():
        raise InputError(f"{path}: no such file; correct the path")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from None
    if not head:
        raise InputError(f"{path}: is empty; it needs a header and rows")
    return head


def check_text(path: Path, head: bytes, encoding: str) -> None:
    """Refuse what is no text in the one sentence that says what it is instead."""
    if head.startswith(b"PK\x03\x04"):
        raise InputError(f"{path}: {_zipped(path)}")
    if head.startswith(b"\x93NUMPY"):
        raise InputError(f"{path}: is a NumPy array; give it a name that ends in .npy")
    if head.startswith(PARQUET):
        raise InputError(f"{path}: is a Parquet file; give it a name that ends in .parquet")
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise InputError(f"{path}: is compressed with {name}; unpack it, or compress it with gzip (.csv.gz)")
    for magic, name in _OTHERS.items():
        if head.startswith(magic):
            raise InputError(f"{path}: is {name}, not a table; {_SAVE}")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        if not _wide(encoding):
            raise InputError(f"{path}: is UTF-16 text; set data.encoding = 'utf-16', or save it as UTF-8")
        return
    if not _wide(encoding) and (0 in head or sum(byte in _CONTROLS for byte in head) > len(head) // 20):
        raise InputError(f"{path}: is a binary file, not a table; {_SAVE}")


def _wide(encoding: str) -> bool:
    return encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32"))


def _zipped(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return "is a zip archive that cannot be opened; get it whole again"
    if names and all(name.endswith(".npy") for name in names):
        return "is an archive of NumPy; give it a name that ends in .npz"
    if any(name.startswith("xl/") for name in names):
        return f"is an Excel workbook; {_SAVE}"
    if "content.xml" in names:
        return f"is an OpenDocument file; {_SAVE}"
    return "is a zip archive; unpack it and name the table in it"


MISSING = ("", "NA", "NaN", "nan", "null", "NULL", "?", "n/a", "N/A", "#N/A", "<NA>", "-")


def read_table(
    path: Path,
    separator: str = ",",
    missing: Sequence[str] = MISSING,
    text: Sequence[str] = (),
    *,
    categorical: Sequence[str] = (),
    decimal: str = ".",
    thousands: str = "",
    encoding: str = "utf-8",
) -> pl.DataFrame:
    """All rows of a file: Parquet or NumPy's by its suffix, anything else CSV, plain or packed by gzip.

    The `text` columns stay as they are written, and so do the `categorical` ones, which become `pl.Categorical`: so
    that nobody takes them for numbers later. Names that the file does not have are passed over.
    """
    head = check_file(path)
    try:
        if is_parquet(path):
            frame = _parquet(path, head)
        elif is_array_file(path):
            frame = as_meant(table_of_arrays(read_arrays(path), str(path), ROW in text))
        else:
            frame = _csv(path, head, separator, missing, (*text, *categorical), decimal, thousands, encoding)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from None
    if frame.height == 0:
        raise InputError(f"{path}: has a header but no rows; add rows")
    _log.info("read %s: %s rows, %s columns", path, frame.height, frame.width)
    return as_declared(frame, categorical)


def header_of(path: Path, separator: str = ",", encoding: str = "utf-8") -> list[str]:
    """The names of a CSV file's columns; none of a file that has types of its own."""
    head = check_file(path)
    if is_parquet(path) or is_array_file(path):
        return []
    content = _content(path, head, encoding)
    return header_names(io.BytesIO(content) if content is not None else path.open("rb"), separator)


def _parquet(path: Path, head: bytes) -> pl.DataFrame:
    import polars as pl

    if not head.startswith(PARQUET):
        raise InputError(f"{path}: is no Parquet file; give a CSV file a name that ends in .csv")
    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"{path}: cannot be read as a table: {reason}; repair the file") from None
    return as_meant(frame)


def as_meant(frame: pl.DataFrame) -> pl.DataFrame:
    """A table whose types were chosen: a column of text that holds only numbers, such as codes, is meant as text."""
    import polars as pl

    words = [name for name, kind in frame.schema.items() if kind == pl.String]
    chosen = [name for name in words if numbers_of(frame[name]).null_count() == frame[name].null_count()]
    return frame.with_columns(pl.col(chosen).cast(pl.Categorical)) if chosen else frame


def as_declared(frame: pl.DataFrame, categorical: Sequence[str]) -> pl.DataFrame:
    """The frame with these columns as categories; names that it does not have are passed over."""
    import polars as pl

    declared = [name for name in categorical if name in frame.columns]
    return frame.with_columns(pl.col(declared).cast(pl.String).cast(pl.Categorical)) if declared else frame


def _csv(
    path: Path,
    head: bytes,
    separator: str,
    missing: Sequence[str],
    text: Sequence[str],
    decimal: str,
    thousands: str,
    encoding: str,
) -> pl.DataFrame:
    import polars as pl

    content = _content(path, head, encoding)
    if decimal == separator and b'"' not in (content or head):
        raise InputError(f"{path}: data.decimal and data.separator are both {decimal!r}; set data.separator = ';'")

    def opened() -> IO[bytes]:
        return io.BytesIO(content) if content is not None else path.open("rb")

    names = header_names(opened(), separator)
    check_header(path, names, separator, opened)
    plain = decimal == "." and not thousands
    # Numbers in another writing are read as they stand, and only then made numbers.
    kept = {name: pl.String for name in names if not plain or name in text}
    try:
        frame = pl.read_csv(
            content if content is not None else path,
            separator=separator,
            null_values=list(missing),
            # The reader doubles a quote in a name, where the name is quoted.
            schema_overrides={written: pl.String for name in kept for written in (name, name.replace('"', '""'))},
            infer_schema_length=None,
        )
    except pl.exceptions.PolarsError as error:
        raise csv_fault(path, opened, separator, error) from None
    if len(names) == len(frame.columns):
        frame.columns = names
    check_last_line(path, opened(), separator, len(frame.columns))
    if not plain:
        given = [name for name in frame.columns if name not in text]
        frame = frame.with_columns(in_plain_form(frame[name], decimal, thousands, str(path)) for name in given)
    return frame


def _content(path: Path, head: bytes, encoding: str) -> bytes | None:
    """The text as UTF-8 where the file is packed or has another encoding; None: the file is it."""
    packed = head.startswith(GZIP)
    if packed:
        try:
            content = gzip.decompress(path.read_bytes())
        except (OSError, EOFError, zlib.error):
            raise InputError(f"{path}: its gzip compression is cut short or damaged; get it whole again") from None
        if not content:
            raise InputError(f"{path}: is empty; it needs a header and rows")
        head = content[: len(head)]
    check_text(path, head, encoding)
    try:
        utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")
    except LookupError:
        raise InputError(f"data.encoding = {encoding!r}: no such encoding; try 'utf-8', 'cp1252' or 'utf-16'") from None
    if utf8:
        return content if packed else None
    try:
        return (content if packed else path.read_bytes()).decode(encoding).encode()
    except UnicodeError:
        raise InputError(f"{path}: is not {encoding} text; correct data.encoding") from None


def header_names(file: IO[bytes], separator: str) -> list[str]:
    """The names in the first line that is not empty."""
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as lines:
        try:
            return next((record for record in csv.reader(lines, delimiter=separator) if record), [])
        except csv.Error:
            return []


def check_header(path: Path, names: Sequence[str], separator: str, opened: Callable[[], IO[bytes]]) -> None:
    """Refuse a header with a name twice, of one column that was not separated, or that is no text."""
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InputError(f"{path}: two columns are named {name!r}; rename one")
    if len(names) == 1:
        for other in ",;\t|":
            if other != separator and other in names[0]:
                raise InputError(f"{path}: one column only, {names[0]!r}; set data.separator = {other!r}")
    if any("\ufffd" in name for name in names):
        raise InputError(_not_utf8(path, opened()))


def check_last_line(path: Path, file: IO[bytes], separator: str, columns: int) -> None:
    """A file cut short ends in a line with too few fields, which a CSV reader would take for missing values."""
    with file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - (1 << 16)))
        lines = file.read().splitlines()
        last = lines[-1].decode("utf-8", errors="replace") if lines else ""
        # A quote may enclose line ends: then this is no whole record.
        if '"' in last or not last or (fields := last.count(separator) + 1) >= columns:
            return
        file.seek(0)
        number = sum(1 for _ in file)
    raise InputError(
        f"{path}: line {number} has {fields} of {columns} fields: the file is cut short; get it whole again"
    )


def csv_fault(path: Path, opened: Callable[[], IO[bytes]], separator: str, error: Exception) -> InputError:
    """Why a reader gave a file up, with the line where it can be found."""
    reason = _first_wrong_line(opened(), separator) or str(error).split("\n")[0]
    if "utf-8" in reason:
        return InputError(_not_utf8(path, opened()))
    return InputError(f"{path}: cannot be read as a table: {reason}; repair the file")


def _first_wrong_line(file: IO[bytes], separator: str) -> str:
    with io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="") as lines:
        reader = csv.reader(lines, delimiter=separator)
        try:
            columns = len(next(reader))
            for record in reader:
                if len(record) > columns:
                    return f"line {reader.line_num} has {len(record)} fields, the header {columns}"
        except (csv.Error, StopIteration):
            return ""
    return ""


def _not_utf8(path: Path, file: IO[bytes]) -> str:
    place = ""
    with file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                place = f"line {number} "
                break
    return (
        f"{path}: {place}is not UTF-8 text; set data.encoding, such as 'cp1252' for files of Windows and older "
        "Excel, or save the file as UTF-8"
    )
