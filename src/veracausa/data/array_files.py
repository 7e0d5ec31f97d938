"""NumPy's files, .npy and .npz: read without pickle, and only after their sizes have been checked."""

from __future__ import annotations

import logging
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl

_log = logging.getLogger(__name__)

AnyArray = np.ndarray[Any, Any]
ROW = "row"
"""The id column of an array: the row's number from 1 on."""
ALONE = "x"
"""What the one array of a .npy file is called."""
MOST_BYTES = 1 << 34
MOST_ARRAYS = 10_000
MOST_COLUMNS = 1 << 20
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def is_array_file(path: Path) -> bool:
    """Whether the name says that it is NumPy's."""
    return path.suffix.lower() in (".npy", ".npz")


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """The arrays of a file by name; that of a .npy file is called `x`."""
    if path.is_dir() or not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; name a .npy or .npz file")
    try:
        if path.suffix.lower() == ".npz":
            found = _of_archive(path)
        else:
            with path.open("rb") as file:
                found = {ALONE: _read(file, path.stat().st_size, str(path))}
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from None
    _log.info("read %s: %s arrays", path, len(found))
    return found


def _of_archive(path: Path) -> dict[str, AnyArray]:
    found: dict[str, AnyArray] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            whole = sum(member.file_size for member in members)
            if len(members) > MOST_ARRAYS or whole > MOST_BYTES:
                raise InputError(f"{path}: holds {len(members)} arrays, {whole:,} bytes: too many; save it as Parquet")
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in found or name == member.filename:
                    raise InputError(f"{path}: {name!r} is no array of its own; save it with numpy.savez")
                with archive.open(member) as stream:
                    found[name] = _read(stream, member.file_size, f"{path}: {name!r}")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be read as a NumPy archive ({error}); save it with numpy.savez") from None
    if not found:
        raise InputError(f"{path}: holds no arrays; save them with numpy.savez")
    return found


def _read(stream: IO[bytes], size: int, where: str) -> AnyArray:
    """One array, once its header and the bytes that are there agree: no header alone makes room in memory."""
    try:
        header = _HEADERS.get(np.lib.format.read_magic(stream))
        if header is None:
            raise ValueError("a version that has columns with names beyond ASCII")
        shape, columns_first, kind = header(stream)
    except (ValueError, EOFError, SyntaxError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"{where}: cannot be read as a NumPy array ({reason}); save it with numpy.save") from None
    if kind.hasobject:
        raise InputError(f"{where}: holds Python objects, which only pickle could read; save numbers or text")
    if any(type(length) is not int or length < 1 for length in (*shape, kind.itemsize)):
        raise InputError(f"{where}: an array of shape {shape} of {kind} holds nothing; save one with rows")
    wanted, there = math.prod(shape) * kind.itemsize, size - stream.tell()
    if wanted != there or wanted > MOST_BYTES:
        raise InputError(
            f"{where}: says {wanted:,} bytes of shape {shape} and holds {there:,}; get it whole again"
            if wanted != there
            else f"{where}: {wanted:,} bytes are too many; save it as Parquet"
        )
    body = bytearray(wanted)
    view, done = memoryview(body), 0
    while done < wanted and (got := stream.readinto(view[done:])):  # type: ignore[attr-defined]
        done += got
    if done < wanted:
        raise InputError(f"{where}: ends after {done:,} of {wanted:,} bytes; get it whole again")
    stream.read(1)  # at the end an archive checks its sum
    values = np.frombuffer(body, kind).reshape(shape, order="F" if columns_first else "C")
    return values.astype(kind.newbyteorder("=")) if kind.byteorder not in "=|" else values


def table_of_arrays(arrays: Mapping[str, AnyArray], where: str, numbered: bool = False) -> pl.DataFrame:
    """Arrays as a table: one of one dimension is a column of its name, one of two dimensions is name0, name1, ...

    numbered: also a column `row` with the row's number, unless there is one.
    """
    import polars as pl

    columns: dict[str, AnyArray] = {}
    for name, array in arrays.items():
        if array.dtype.names and array.ndim == 1:
            parts = {field: array[field] for field in array.dtype.names}
        elif array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1 and name != ALONE):
            parts = {name: array.reshape(-1)}
        elif array.ndim == 2 and array.shape[1] > MOST_COLUMNS:
            raise InputError(f"{where}: {name!r} has {array.shape[1]:,} columns, at most {MOST_COLUMNS:,} are read")
        elif array.ndim == 2:
            parts = {f"{name}{at}": np.ascontiguousarray(array[:, at]) for at in range(array.shape[1])}
        else:
            raise InputError(f"{where}: {name!r} has shape {array.shape}, which is no table; give rows and columns")
        for column in parts:
            if column in columns:
                raise InputError(f"{where}: two columns are named {column!r}; rename an array")
        columns |= parts
    heights = {name: len(column) for name, column in columns.items()}
    if len(set(heights.values())) > 1:
        said = ", ".join(f"{name} {rows}" for name, rows in list(heights.items())[:6])
        raise InputError(f"{where}: arrays of one table have as many rows, and these differ ({said})")
    if numbered and ROW not in columns:
        columns = {ROW: np.arange(1, next(iter(heights.values()), 0) + 1), **columns}
    return pl.DataFrame([_series(name, column, where) for name, column in columns.items()])


def _series(name: str, column: AnyArray, where: str) -> pl.Series:
    import polars as pl

    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8", "replace")
    if column.dtype.kind == "M":
        column = column.astype("M8[us]")
    if column.dtype == np.float16:
        column = column.astype(np.float32)
    if column.dtype.kind not in "iufbUM" or column.ndim != 1 or column.dtype.char == "g":
        raise InputError(f"{where}: column {name!r} holds {column.dtype}; give numbers, text or dates")
    return pl.Series(name, column.tolist() if column.dtype.kind == "U" else column)


TRAIN_AND_TEST = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
"""How archives of pictures call what they hold: those of Keras, and those of MedMNIST."""
TOGETHER = (("images", "labels"), ("x", "y"), ("X", "y"), ("data", "labels"), ("data", "target"))


def picture_arrays(path: Path) -> tuple[tuple[AnyArray, AnyArray], tuple[AnyArray, AnyArray] | None]:
    """Pictures and labels of a .npz file: those to train on, and those to test with, where it tells them apart."""
    arrays = read_arrays(path)
    for pictures, labels, others, theirs in TRAIN_AND_TEST:
        if {pictures, labels, others, theirs} <= set(arrays):
            return (arrays[pictures], arrays[labels]), (arrays[others], arrays[theirs])
    for pictures, labels in TOGETHER:
        if {pictures, labels} <= set(arrays):
            return (arrays[pictures], arrays[labels]), None
    raise InputError(
        f"{path}: holds {', '.join(sorted(arrays)[:8])}; pictures to train on are called images and labels, or "
        "x_train, y_train, x_test and y_test: numpy.savez(path, images=…, labels=…)"
    )


def class_names(labels: AnyArray, rows: int, where: str) -> list[str]:
    """The class of each row as text."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (rows,):
        raise InputError(f"{where}: labels of shape {labels.shape} for {rows} pictures; give one a picture")
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels == np.round(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind not in "iuUb":
        raise InputError(f"{where}: labels are {labels.dtype}; give whole numbers or text")
    return [str(label) for label in labels.tolist()]


def in_order(names: set[str]) -> tuple[str, ...]:
    """Classes in their order: numbers by size, words by the alphabet."""
    numbers = all(name.lstrip("-").isdecimal() for name in names)
    return tuple(sorted(names, key=int) if numbers else sorted(names))
