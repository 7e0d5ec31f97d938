"""What counts as one dimension of a representation (Eqs. 11-14)."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Reading = Literal["flat", "channel", "pooled", "patch"]


def choose_reading(wanted: str, shape: tuple[int, ...], rows: int) -> Reading:
    """The reading for payloads of this shape; `auto` takes channels for maps that are too wide for the batch."""
    if len(shape) != 3:
        return "flat"
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    channels, height, width = shape
    return "flat" if channels * height * width <= 2 * rows else "channel"


def as_matrix(r: Tensor, reading: Reading, patch: tuple[int, int] = (4, 4)) -> Tensor:
    """The (samples, dimensions) matrix of a batch of representations."""
    if r.ndim != 4 or reading == "flat":
        return r.flatten(1)
    if reading == "channel":
        return r.permute(0, 2, 3, 1).flatten(0, 2)
    if reading == "pooled":
        return r.mean((2, 3))
    return F.adaptive_avg_pool2d(r, patches(r.shape, patch)).flatten(1)


def count(shape: tuple[int, ...], reading: Reading, patch: tuple[int, int] = (4, 4)) -> int:
    """J, the number of dimensions."""
    if len(shape) != 3:
        return shape[0] if len(shape) == 1 else _product(shape)
    if reading in ("channel", "pooled"):
        return shape[0]
    height, width = patches((1, *shape), patch) if reading == "patch" else shape[1:]
    return shape[0] * height * width


def spread(mask: Tensor, shape: tuple[int, ...], reading: Reading, patch: tuple[int, int] = (4, 4)) -> Tensor:
    """A (rows, dimensions) mask in the shape of the representations, for a dimension that covers several values."""
    if len(shape) != 3 or reading == "flat":
        return mask.view(-1, *shape)
    if reading in ("channel", "pooled"):
        return mask.view(-1, shape[0], 1, 1)
    cells = mask.view(-1, shape[0], *patches((1, *shape), patch))
    return F.interpolate(cells, size=shape[1:], mode="nearest")


def patches(shape: tuple[int, ...], patch: tuple[int, int]) -> tuple[int, int]:
    return min(patch[0], shape[2]), min(patch[1], shape[3])


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
