"""The network that predicts some channels of an image from the others, pixel for pixel."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class UNet(nn.Module):
    """Two halvings and two doublings with skips, a prediction at full resolution; images of any size.

    GroupNorm, not BatchNorm: a row's surrogate must not depend on the rows beside it.
    """

    def __init__(self, inputs: int, outputs: int, width: int = 64) -> None:
        super().__init__()
        self.at_full = nn.Sequential(_block(inputs, width), _block(width, width))
        self.at_half = nn.Sequential(_block(width, 2 * width, stride=2), _block(2 * width, 2 * width))
        self.at_quarter = nn.Sequential(_block(2 * width, 4 * width, stride=2), _block(4 * width, 4 * width))
        self.to_half = _block(6 * width, 2 * width)
        self.to_full = _block(3 * width, width)
        self.head = nn.Conv2d(width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = F.pad(x, (0, -width % 4, 0, -height % 4), mode="replicate")
        full = self.at_full(x)
        half = self.at_half(full)
        values = self.to_half(torch.cat((_doubled(self.at_quarter(half)), half), dim=1))
        values = self.to_full(torch.cat((_doubled(values), full), dim=1))
        predicted: Tensor = self.head(values)
        return predicted[..., :height, :width]


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        nn.GroupNorm(math.gcd(8, outputs), outputs),
        nn.ReLU(inplace=True),
    )


def _doubled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")
