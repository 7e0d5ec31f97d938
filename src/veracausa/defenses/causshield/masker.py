"""The masker ω: it scores how much each dimension of a representation contributes (Eq. 15)."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veracausa.models.layers import Dropout


def build_masker(
    shape: tuple[int, ...], reading: Reading, patch: tuple[int, int], logit_bn: bool, rng: torch.Generator
) -> nn.Module:
    """A masker from representations of this shape to one logit a dimension; its dropout draws from `rng`."""
    if len(shape) != 3:
        return _vector_masker(count(shape, reading, patch), logit_bn, rng)
    if reading in ("channel", "pooled"):
        return _channel_masker(shape[0], logit_bn)
    return _map_masker(shape, reading, patch, logit_bn)


def _channel_masker(channels: int, logit_bn: bool) -> nn.Module:
    return nn.Sequential(
        *_conv(channels, 1),
        *_conv(channels, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 4 * channels, bias=False),
        nn.BatchNorm1d(4 * channels),
        nn.ReLU(),
        nn.Linear(4 * channels, channels),
        _last_norm(channels, logit_bn),
    )


def _map_masker(shape: tuple[int, ...], reading: Reading, patch: tuple[int, int], logit_bn: bool) -> nn.Module:
    channels = shape[0]
    pool = nn.AdaptiveAvgPool2d(patches((1, *shape), patch)) if reading == "patch" else nn.Identity()
    # Every logit over the batch, not every channel: else a logit may hang on its place alone, and be up for all rows.
    last = _last_norm(count(shape, reading, patch), logit_bn)
    return nn.Sequential(
        *_conv(channels, 1), *_conv(channels, 1), pool, nn.Conv2d(channels, channels, 1), nn.Flatten(), last
    )


def _vector_masker(dimensions: int, logit_bn: bool, rng: torch.Generator) -> nn.Module:
    wide = 4 * dimensions
    return nn.Sequential(
        nn.Flatten(),
        Dropout(0.5, rng),
        nn.Linear(dimensions, wide, bias=False),
        nn.BatchNorm1d(wide),
        nn.ReLU(),
        Dropout(0.5, rng),
        nn.Linear(wide, wide, bias=False),
        nn.BatchNorm1d(wide),
        nn.ReLU(),
        nn.Linear(wide, dimensions),
        _last_norm(dimensions, logit_bn),
    )


def _conv(channels: int, stride: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
    return convolution, nn.BatchNorm2d(channels), nn.ReLU()


def _last_norm(dimensions: int, logit_bn: bool) -> nn.Module:
    return nn.BatchNorm1d(dimensions, affine=False) if logit_bn else nn.Identity()


def always_up(upper: Tensor) -> Tensor:
    """The share of dimensions that are upper for more than 95 % of the rows: a masker that ignores its input."""
    return (upper.mean(0) > 0.95).float().mean()


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


def gumbel(shape: torch.Size, rng: torch.Generator) -> Tensor:
    """Gumbel(0, 1) noise on the generator's device."""
    # By two logarithms of uniform numbers: a CPU draws exponential ones five times as slowly.
    uniform = torch.rand(shape, device=rng.device, generator=rng)
    return uniform.clamp_(min=1e-20).log_().neg_().log_().neg_()


def top_k(logits: Tensor, k: int, temperature: float, noise: Tensor | None) -> Tensor:
    """(rows, J) masks with exactly k ones a row; backward they are sigmoids around the k-th largest (straight-through).

    Without `noise` the mask is that of the k highest logits.
    """
    u = logits.float() / temperature
    if noise is not None:
        u = u + noise
    # One more than k, in no order: sorting them takes several times as long as finding them.
    found, index = u.detach().topk(k + 1, dim=1, sorted=False)
    following, at = found.min(1, keepdim=True)
    least = found.scatter(1, at, math.inf).amin(1, keepdim=True)
    threshold = (least + following) / 2
    hard = torch.zeros_like(u).scatter_(1, index, 1.0).scatter_(1, index.gather(1, at), 0.0)
    soft = torch.sigmoid(u - threshold)
    return hard + (soft - soft.detach())  # exactly 0 or 1 forward


def iterative_softmax(logits: Tensor, k: int, temperature: float, rng: torch.Generator) -> Tensor:
    """CIRL's mask: k Gumbel-softmax draws, each fed the one before, and their maximum. Slow for large J."""
    drawn = logits.float()
    mask = torch.zeros_like(drawn)
    for _ in range(k):
        drawn = torch.softmax((drawn + gumbel(drawn.shape, rng)) / temperature, dim=1)
        mask = torch.maximum(mask, drawn)
    return mask


def upper_count(tau: float, dimensions: int) -> int:
    """⌊τJ⌋, at least one and not all."""
    return min(max(1, int(tau * dimensions)), dimensions - 1)
