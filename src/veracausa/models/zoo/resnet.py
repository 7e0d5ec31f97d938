"""ResNet-18 and ResNet-34 with basic blocks, for CIFAR-sized and ImageNet-sized images (He et al., 2016)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from veracausa.models import ModelOptions, models
from veracausa.models.layers import centred

STEM_UNITS = 4


class ResNetOptions(ModelOptions):
    """A residual network cut, by default, at the end of its first stage."""

    cut: int = Field(6, ge=1)
    width: int = Field(64, ge=1)
    """Channels of the first stage; 16 is the lite network that URVFL trains."""
    stem: Literal["cifar", "imagenet"] = "cifar"
    """3×3 at full resolution without pooling, or 7×7 with stride 2 and a max-pool."""
    centre: bool = False
    """Bring inputs from [0, 1] to [−1, 1] inside unit 1."""


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, arriving: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(arriving, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or arriving != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(arriving, width, 1, stride, bias=False),
                nn.BatchNorm2d(width),
            )

    def forward(self, x: Tensor) -> Tensor:
        # In place only on what this block has just made itself; x may be a payload and is never written to.
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Sequential):
    """Units: conv, bn, relu, pool, each block, global average pool, fc; with N2 and N3 numbers declared."""

    conventions: Mapping[str, Mapping[int, int]]

    def __init__(self, units: Sequence[nn.Module], blocks: Sequence[int]) -> None:
        super().__init__(*units)
        self.conventions = conventions(blocks)


def conventions(blocks: Sequence[int]) -> dict[str, dict[int, int]]:
    """N2 and N3 numbers of a network with `blocks` blocks a stage, each to its count of N1 units.

    A weight layer (N3) ends with its normalisation and activation, so the stem's one convolution ends at its ReLU and
    every second convolution at the end of a block.
    """
    total = sum(blocks)
    children = {unit: unit for unit in range(1, STEM_UNITS + 1)}
    for stage in range(1, len(blocks) + 1):
        children[STEM_UNITS + stage] = STEM_UNITS + sum(blocks[:stage])
    last = STEM_UNITS + len(blocks)
    children |= {last + 1: STEM_UNITS + total + 1, last + 2: STEM_UNITS + total + 2}
    weights = {1: STEM_UNITS - 1}
    weights |= {1 + 2 * block: STEM_UNITS + block for block in range(1, total + 1)}
    weights[2 + 2 * total] = STEM_UNITS + total + 2
    return {"N2": children, "N3": weights}


def resnet(options: ResNetOptions, channels: int, outputs: int, blocks: Sequence[int]) -> ResNet:
    """The network with torchvision's weights: kaiming normal (fan out) convolutions, BatchNorm 1 and 0, default fc."""
    width = options.width
    if options.stem == "cifar":
        conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        # An identity in the pool's place keeps the numbers of the cuts the same for both stems.
        pool: nn.Module = nn.Identity()
    else:
        conv = nn.Conv2d(channels, width, 7, 2, padding=3, bias=False)
        pool = nn.MaxPool2d(3, 2, padding=1)
    units: list[nn.Module] = [centred(conv, options.centre), nn.BatchNorm2d(width), nn.ReLU(), pool]
    arriving = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            leaving = width * 2**stage
            units.append(BasicBlock(arriving, leaving, 2 if stage > 0 and block == 0 else 1))
            arriving = leaving
    units += [nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.LazyLinear(outputs)]
    network = ResNet(units, blocks)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


@models.register("resnet18", ResNetOptions)
def resnet18(options: ResNetOptions, shape: tuple[int, ...], outputs: int) -> ResNet:
    """14 units: the stem's four, eight blocks, pool, fc."""
    return resnet(options, shape[0], outputs, (2, 2, 2, 2))


@models.register("resnet34", ResNetOptions)
def resnet34(options: ResNetOptions, shape: tuple[int, ...], outputs: int) -> ResNet:
    """22 units: the stem's four, sixteen blocks, pool, fc."""
    return resnet(options, shape[0], outputs, (3, 4, 6, 3))
