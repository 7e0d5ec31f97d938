"""Decoders from a payload back to a row, and the strong one that leakage is measured with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.models.layers import RobustInputScaling

_VECTOR_CHANNELS = 128

Size = tuple[int, int]


class ResidualBlock(nn.Module):
    """Pre-activation: BN-ReLU-conv-BN-ReLU-conv, and a 1×1 shortcut where the number of channels changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.shortcut(x) + self.body(x)
        return total


class LinearResidualBlock(nn.Module):
    """The same for vectors: BN-ReLU-linear, twice, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = [nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)]
        self.body = nn.Sequential(*half, nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = x + self.body(x)
        return total


class ResizeTo(nn.Module):
    """To a fixed height and width; nothing to do where they are right already."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[-2:]) == self.size:
            return x
        return F.interpolate(x, self.size, mode="bilinear", align_corners=False)


class VectorToMap(nn.Module):
    """A vector payload as a map of 128 channels."""

    def __init__(self, features: int, size: Size) -> None:
        super().__init__()
        self.size = size
        self.linear = nn.Linear(features, _VECTOR_CHANNELS * size[0] * size[1])

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1)).view(-1, _VECTOR_CHANNELS, *self.size)  # type: ignore[no-any-return]


def conv_decoder(payload: Sequence[int], row: Sequence[int], blocks: int = 0, channels: int = 16) -> nn.Sequential:
    """ConvDec(N, C) with N convolutions between its ends, then BN and a sigmoid; (0, 16) is ResSFL's light decoder."""

    def block() -> list[nn.Module]:
        return _activated(nn.Conv2d(channels, channels, 3, padding=1))

    return _picture_decoder(payload, row, channels, blocks, block, block, final_norm=True)


def residual_decoder(payload: Sequence[int], row: Sequence[int], blocks: int = 4, channels: int = 64) -> nn.Sequential:
    """ResDec(N, C), the same with residual blocks: 4 blocks of 64 channels are strong, 2 of 32 medium."""

    def block() -> list[nn.Module]:
        return [ResidualBlock(channels, channels)]

    return _picture_decoder(payload, row, channels, blocks, block, block, final_norm=True)


def strong_decoder(
    payload: Sequence[int], row: Sequence[int], blocks: int = 4, channels: int = 128, per_upsampling: int = 2
) -> nn.Sequential:
    """The decoder leakage is measured with: so many residual blocks, and two more after every doubling of the size.

    Pixels, (c, h, w), end in a sigmoid. A table's columns, (features,), come from an MLP of residual blocks and are
    not bounded.
    """
    if len(row) == 1:
        return table_decoder(payload, row, blocks, 4 * channels, levelled=True)

    def block() -> list[nn.Module]:
        return [ResidualBlock(channels, channels)]

    def after() -> list[nn.Module]:
        return [ResidualBlock(channels, channels) for _ in range(per_upsampling)]

    return _picture_decoder(payload, row, channels, blocks, block, after, final_norm=False, levelled=True)


def table_decoder(
    payload: Sequence[int], row: Sequence[int], blocks: int = 4, width: int = 512, levelled: bool = False
) -> nn.Sequential:
    """An MLP of residual blocks with a linear end, for rows of a table."""
    features = math.prod(payload)
    return nn.Sequential(
        nn.Flatten(),
        *([RobustInputScaling(features)] if levelled else []),
        nn.BatchNorm1d(features, affine=False),
        nn.Linear(features, width),
        *(LinearResidualBlock(width) for _ in range(blocks)),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, math.prod(row)),
    )


def upsampling_sizes(start: Size, end: Size) -> list[Size]:
    """The sizes of the maps on the way from payload to picture, the payload's first; each about twice the last."""
    stages = max(0, *(round(math.log2(to / of)) for of, to in zip(start, end, strict=True)))
    halved = [tuple(-(-side // 2**left) for side in end) for left in range(stages - 1, -1, -1)]
    return [start, *((max(start[0], height), max(start[1], width)) for height, width in halved)]


def _picture_decoder(
    payload: Sequence[int],
    row: Sequence[int],
    channels: int,
    blocks: int,
    block: Callable[[], list[nn.Module]],
    after_upsampling: Callable[[], list[nn.Module]],
    final_norm: bool,
    levelled: bool = False,
) -> nn.Sequential:
    outputs, height, width = row
    layers: list[nn.Module] = []
    if len(payload) == 3:
        arriving, start = payload[0], (payload[1], payload[2])
        layers += [RobustInputScaling(arriving)] if levelled else []
    else:
        arriving, start = _VECTOR_CHANNELS, (-(-height // 4), -(-width // 4))
        features = math.prod(payload)
        layers += [nn.Flatten(), *([RobustInputScaling(features)] if levelled else [])]
        layers += [nn.BatchNorm1d(features, affine=False), VectorToMap(features, start)]
    # Payloads come in any scale; a decoder must not depend on it.
    layers += [nn.BatchNorm2d(arriving, affine=False), *_activated(nn.Conv2d(arriving, channels, 3, padding=1))]
    for _ in range(blocks):
        layers += block()
    for size in upsampling_sizes(start, (height, width))[1:]:
        up = nn.ConvTranspose2d(channels, channels, 3, stride=2, padding=1, output_padding=1)
        layers += [*_activated(up), ResizeTo(size), *after_upsampling()]
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, outputs, 3, padding=1)]
    layers += [nn.BatchNorm2d(outputs)] if final_norm else []
    return nn.Sequential(*layers, ResizeTo((height, width)), nn.Sigmoid())


def _activated(convolution: nn.Module) -> list[nn.Module]:
    return [convolution, nn.BatchNorm2d(int(convolution.out_channels)), nn.ReLU()]  # type: ignore[arg-type]
