"""Layers that leave a payload few values of bounded power, and how much so many noisy values can say."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class UnitVariance(nn.modules.batchnorm._BatchNorm):
    """Every channel with mean 0 and variance 1: over the batch and all places in training, by averages at inference.

    It has no weights: with a scale of its own the model would learn to shout over the noise.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, affine=False)

    def _check_input_dim(self, input: Tensor) -> None:
        """Vectors and maps alike."""

    def forward(self, x: Tensor) -> Tensor:
        # One value has no variance: a batch of one vector is normalised as at inference.
        if self.training and x.numel() == x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        return super().forward(x)


def build_bottleneck(shape: tuple[int, ...], channels: int, stride: int, kernel: int) -> nn.Sequential:
    """Layers to `channels` normalised channels, of maps pooled over `stride`×`stride` places, or as many features."""
    if len(shape) != 3:
        before: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        return nn.Sequential(*before, nn.Linear(math.prod(shape), channels, bias=False), UnitVariance(channels))
    pool: list[nn.Module] = [nn.AvgPool2d(stride, ceil_mode=True)] if stride > 1 else []
    narrow = nn.Conv2d(shape[0], channels, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(*pool, narrow, UnitVariance(channels))


def capped(r: Tensor, most: float) -> Tensor:
    """The rows of `r`, those whose root mean square is above `most` scaled down to it; 0: as they are.

    Normalised channels bound the power of the whole batch, which one row could still have for itself.
    """
    if not most:
        return r
    power = r.flatten(1).float().square().mean(1).clamp_min(most**2)  # before the root, whose slope at 0 is infinite
    scale: Tensor = most * torch.rsqrt(power)
    return r * scale.to(r.dtype).view(-1, *[1] * (r.ndim - 1))


def capacity_bits(values: int, power: float, noise: float) -> float:
    """values/2 · log2(1 + power/noise²): no code carries more through Gaussian noise, whatever the model learns.

    Of one payload; `power` is the mean square of its values. Several payloads of a row with fresh noise carry more.
    """
    return math.inf if noise == 0 else values / 2 * math.log2(1 + power / noise**2)


def channel_deviations(r: Tensor) -> Tensor:
    """(channels,) the standard deviation of each channel over rows and places."""
    over: Any = (0, *range(2, r.ndim))
    return r.float().std(over, correction=0)
