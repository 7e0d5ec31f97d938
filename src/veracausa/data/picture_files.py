"""The IDX format of MNIST and its kin: a header with the shape, then unsigned bytes; mostly gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from torch import Tensor

from veracausa.data.files import reading
from veracausa.errors import InputError

# No picture data set comes near this; a larger side is a broken header, not a reason to allocate.
_MAX_SIDE = 1 << 14


def read_idx(path: Path, dimensions: int, limit: int | None = None) -> tuple[Tensor, int]:
    """The first `limit` records as uint8, and how many records the file says it holds."""
    mend = "delete it so that it is fetched again, or replace it by an intact copy"
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            return _read_idx(cast(IO[bytes], stream), path, dimensions, limit, mend)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the gzip data is broken ({error}); {mend}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {mend}") from None


def _read_idx(stream: IO[bytes], path: Path, dimensions: int, limit: int | None, mend: str) -> tuple[Tensor, int]:
    header = stream.read(4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions:
        raise InputError(f"{path}: ends inside its header, at byte {len(header)}; {mend}")
    if header[:4] != bytes([0, 0, 8, dimensions]):
        raise InputError(f"{path}: byte 0 does not start an IDX file of {dimensions}-dimensional bytes; {mend}")
    count, *sides = struct.unpack(f">{dimensions}I", header[4:])
    if not count or any(not 0 < side <= _MAX_SIDE for side in sides):
        raise InputError(f"{path}: its header (byte 4) says {count} records of shape {sides}; {mend}")
    wanted = count if limit is None else min(limit, count)
    size = math.prod(sides)
    body = bytearray()
    try:
        while len(body) < wanted * size and (block := stream.read(min(1 << 22, wanted * size - len(body)))):
            body += block
        whole = len(body) == wanted * size
        # Reading on to the end also checks gzip's own checksum.
        surplus = stream.read(1) if whole and wanted == count else b""
    except (EOFError, zlib.error) as error:
        place = f"record {len(body) // size + 1} of {count}, byte {len(header) + len(body)} unpacked"
        raise InputError(f"{path}: the gzip data is broken at {place} ({error}); {mend}") from None
    if not whole:
        place = f"record {len(body) // size + 1} of {count} (byte {len(header) + len(body)})"
        raise InputError(f"{path}: ends inside {place}; {mend}")
    if surplus:
        raise InputError(f"{path}: goes on after its {count} records (byte {len(header) + len(body)}); {mend}")
    values = np.frombuffer(body, np.uint8).reshape(wanted, *sides)
    return torch.from_numpy(values), count


_PIXELS = 3 * 32 * 32
_MEND = "delete it so that it is fetched again, or replace it by an intact copy"


def count_records(path: Path, label_bytes: int) -> int:
    """How many records the file holds; a file that ends inside one is refused."""
    size = label_bytes + _PIXELS
    with reading(path):
        length = path.stat().st_size
    if length == 0:
        raise InputError(f"{path}: is empty; {_MEND}")
    if length % size:
        whole = length // size
        raise InputError(f"{path}: ends inside record {whole + 1}, which starts at byte {whole * size}; {_MEND}")
    return length // size


def read_records(path: Path, label_bytes: int, classes: tuple[int, ...], limit: int | None) -> tuple[Tensor, Tensor]:
    """Labels (rows, label_bytes) int64 and pictures (rows, 3, 32, 32) uint8 of the first `limit` records."""
    rows = count_records(path, label_bytes)
    rows = rows if limit is None else min(rows, limit)
    size = label_bytes + _PIXELS
    with reading(path):
        records = np.fromfile(path, np.uint8, rows * size).reshape(rows, size)
    labels = records[:, :label_bytes].astype(np.int64)
    wrong = np.argwhere(labels >= np.array(classes))
    if len(wrong):
        row, column = wrong[0]
        place = f"record {row + 1} (byte {row * size + column})"
        raise InputError(
            f"{path}: {place}: label {labels[row, column]} is outside the {classes[column]} classes; {_MEND}"
        )
    pictures = np.ascontiguousarray(records[:, label_bytes:]).reshape(rows, 3, 32, 32)
    return torch.from_numpy(labels), torch.from_numpy(pictures)


ANNOTATIONS = "val_annotations.txt"
_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


def pictures_below(folder: Path) -> list[Path]:
    """Every picture file in the folder and below it, in order of name."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    return sorted(path for path in found if not path.name.startswith("."))


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """Class name -> its pictures, for a folder of class folders; a class without any is refused."""
    classes = {}
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        classes[path.name] = pictures_below(path)
        if not classes[path.name]:
            raise InputError(f"{path}: a class folder without pictures; add some, or remove the folder")
    if not classes:
        raise InputError(f"{folder}: holds no class folders; put each class's pictures into a folder named after it")
    return classes


def annotated(folder: Path) -> dict[str, list[Path]]:
    """Class name -> its pictures, for Tiny-ImageNet's own form: one folder `images`, and a list that names classes."""
    listing = folder / ANNOTATIONS
    classes: dict[str, list[Path]] = {}
    for number, line in enumerate(listing.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) < 2:
            raise InputError(f"{listing}, line {number}: must be a file name, a tab and its class")
        path = folder / "images" / fields[0]
        if not path.is_file():
            raise InputError(f"{listing}, line {number}: there is no {path}; unpack the archive again")
        classes.setdefault(fields[1], []).append(path)
    return classes


def in_turn(classes: dict[str, list[Path]], names: Sequence[str]) -> tuple[list[Path], Tensor]:
    """All pictures and their labels, one of each class in turn, so that the first ones are a fair sample."""
    turns = zip_longest(*([(path, label) for path in classes.get(name, [])] for label, name in enumerate(names)))
    chosen = [entry for turn in turns for entry in turn if entry is not None]
    return [path for path, _ in chosen], torch.tensor([label for _, label in chosen], dtype=torch.int64)


def read_pictures(paths: Sequence[Path], channels: int, side: int | None) -> Tensor:
    """(pictures, channels, height, width) uint8; with `side`, each is scaled and cropped to that square."""
    pixels: np.ndarray[Any, Any] | None = None
    for row, path in enumerate(paths):
        picture = _read(path, channels, side)
        if pixels is None:
            pixels = np.empty((len(paths), *picture.shape), np.uint8)
        if picture.shape != pixels.shape[1:]:
            here, there = (f"{shape[2]}x{shape[1]}" for shape in (picture.shape, pixels.shape[1:]))
            raise InputError(
                f"{path}: has {here} pixels, while {paths[0]} has {there}; set data.size to bring all to one size"
            )
        pixels[row] = picture
    if pixels is None:
        return torch.empty((0, channels, side or 0, side or 0), dtype=torch.uint8)
    return torch.from_numpy(pixels)


def as_pictures(
    array: np.ndarray[Any, Any], where: str, channels: int, side: int | None, scale: bool = False
) -> Tensor:
    """Pictures of an array as (N, channels, H, W); grey ones become three equal channels where three are wanted.

    scale: bring them to the wanted side, as pictures in files are brought to it.
    """
    shape = array.shape
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or not len(array):
        hint = "; of numbers from 0 to 1 make (255 * x).round().astype('uint8')" if array.dtype.kind == "f" else ""
        raise InputError(
            f"{where}: holds {array.dtype} of shape {shape}; "
            f"pictures are uint8 (N, H, W), (N, H, W, C) or (N, C, H, W){hint}"
        )
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[-1] in (1, 3) and array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.shape[1] == 1 and channels == 3:
        array = array.repeat(3, axis=1)
    if scale and side is not None and array.shape[1] == channels and array.shape[2:] != (side, side):
        array = np.stack([_fitted(picture, side) for picture in array])
    if array.shape[1] != channels or (side is not None and array.shape[2:] != (side, side)):
        expected = f"{channels} channels" + (f" of {side}x{side} pixels" if side else "")
        raise InputError(f"{where}: shape {shape} does not fit; the model wants {expected}")
    return torch.from_numpy(np.ascontiguousarray(array))


def _fitted(picture: np.ndarray[Any, Any], side: int) -> np.ndarray[Any, Any]:
    from PIL import Image, ImageOps

    image = Image.fromarray(picture[0] if len(picture) == 1 else np.ascontiguousarray(picture.transpose(1, 2, 0)))
    values = np.asarray(ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR))
    return values[None] if len(picture) == 1 else values.transpose(2, 0, 1)


def _read(path: Path, channels: int, side: int | None) -> np.ndarray[Any, Any]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            image = file.convert("L" if channels == 1 else "RGB")
    except UnidentifiedImageError:
        raise InputError(f"{path}: cannot be read as a picture; repair or remove it") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: cannot be read as a picture ({error}); repair or remove it") from None
    if side is not None and image.size != (side, side):
        image = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    values = np.asarray(image)
    return values[None] if channels == 1 else values.transpose(2, 0, 1)
