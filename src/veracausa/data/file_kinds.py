"""What a file is that was given as a table: its first bytes say it, whatever its name."""

from __future__ import annotations

import zipfile
from pathlib import Path

from veracausa.errors import InputError

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
    b"\x93NUMPY": "a NumPy array",
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
    if any(name.startswith("xl/") for name in names):
        return f"is an Excel workbook; {_SAVE}"
    if "content.xml" in names:
        return f"is an OpenDocument file; {_SAVE}"
    return "is a zip archive; unpack it and name the table in it"
