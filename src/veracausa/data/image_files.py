"""Pictures in folders: which there are, and their pixels as one array."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veracausa.errors import InputError

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


def _read(path: Path, channels: int, side: int | None) -> np.ndarray[Any, Any]:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            image = file.convert("L" if channels == 1 else "RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: cannot be read as a picture ({error}); repair or remove it") from None
    if side is not None and image.size != (side, side):
        image = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    values = np.asarray(image)
    return values[None] if channels == 1 else values.transpose(2, 0, 1)
