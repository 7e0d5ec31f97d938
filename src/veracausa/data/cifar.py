"""The binary record format of CIFAR: label bytes, then 3072 pixel bytes, one colour after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from veracausa.data.files import reading
from veracausa.errors import InputError

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
