"""The format of a transcript's folder: its head, the names of its parts, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from veracausa.errors import InputError

VERSION = 1
HEAD = "transcript.json"
_PART = re.compile(r"part-(\d{5})\.safetensors")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


class Head(BaseModel):
    """What `transcript.json` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = VERSION
    victim: str
    payload_shape: tuple[int, ...] = Field(min_length=1)
    dtype: str = "float32"
    row_shape: tuple[int, ...] | None = None
    task: str = Field("classification", pattern="^(classification|regression)$")
    classes: int = Field(0, ge=0)
    """How many; 0 in a regression, or where they are not known."""
    moments: dict[str, int] = {}
    """Exchanges by name, such as {"start": 1, "end": 1280}."""
    others: dict[str, tuple[int, ...]] = {}
    """The other passive parties whose payloads stand beside the victim's, and their shapes."""
    exchanges: int | None = None
    """How many there are; unset while a training is still being recorded."""


def check_payloads(path: Path, name: str, values: Tensor, shape: Sequence[int], dtype: str) -> None:
    """Refuse payloads of another shape or type than the head says, or that are not finite."""
    if tuple(values.shape) != tuple(shape):
        raise InputError(f"{path}: {name} have shape {tuple(values.shape)}, {HEAD} makes it {tuple(shape)}")
    if values.dtype != DTYPES[dtype]:
        raise InputError(f"{path}: {name} are {type_word(values.dtype)}, {HEAD} says {dtype}")
    if not values.isfinite().all():
        row = int((~values.isfinite()).flatten(1).any(1).nonzero()[0, 0])
        raise InputError(f"{path}: row {row} of {name} is not finite; a training that diverged cannot be read")


def check_labels(path: Path, labels: Tensor, head: Head) -> None:
    """Refuse labels that do not suit the task."""
    if head.task == "regression":
        if not (labels.is_floating_point() and labels.isfinite().all()):
            raise InputError(f"{path}: the labels of a regression must be finite floating-point numbers")
    elif labels.dtype != torch.int64 or int(labels.min()) < 0:
        raise InputError(f"{path}: labels must be int64 classes from 0")
    elif head.classes and int(labels.max()) >= head.classes:
        raise InputError(f"{path}: a label is {int(labels.max())}, {HEAD} says {head.classes} classes")


def read_head(path: Path) -> Head:
    """What `transcript.json` says, checked."""
    try:
        text = (path / HEAD).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: not a transcript (it has no {HEAD})") from None
    try:
        head = Head.model_validate_json(text)
    except (ValidationError, UnicodeDecodeError) as error:
        problem: Any = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {}
        where = ".".join(map(str, problem.get("loc", ())))
        raise InputError(f"{path / HEAD}: {where + ': ' if where else ''}{problem.get('msg', 'not text')}") from None
    if head.version != VERSION:
        raise InputError(f"{path / HEAD}: version {head.version} of the format; this program reads version {VERSION}")
    if head.dtype not in DTYPES:
        raise InputError(f"{path / HEAD}: dtype {head.dtype!r} (there are: {', '.join(DTYPES)})")
    return head


def parts_of(path: Path) -> list[tuple[int, Path]]:
    """The parts by number, as far as there are any."""
    found = ((_PART.fullmatch(entry.name), entry) for entry in path.iterdir())
    return sorted((int(match[1]), entry) for match, entry in found if match)


def type_word(dtype: torch.dtype) -> str:
    """Its name as a head would write it."""
    return str(dtype).removeprefix("torch.")
