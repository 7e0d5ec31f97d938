"""The masker ω: it scores how much each dimension of a representation contributes (Eq. 15)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veracausa.defenses.causshield.dimensions import Reading, count, patches
from veracausa.models.dropout import Dropout


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
