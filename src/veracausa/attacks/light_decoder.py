"""The small decoder of URVFL: three convolutions, and one more before them for every halving of the size."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from veracausa.models.decoders import Resize, upsampling_sizes

_WIDE = 64


def light_decoder(payload: Sequence[int], row: Sequence[int]) -> nn.Sequential:
    """From a map to a picture in [0, 1]: Ch→32→16→c, or 64→64→32→c for wide payloads; ends in a sigmoid."""
    channels, height, width = payload
    first, second = (64, 32) if channels >= _WIDE else (32, 16)
    layers: list[nn.Module] = []
    for size in upsampling_sizes((height, width), (row[1], row[2]))[1:]:
        layers += [nn.Upsample(scale_factor=2, mode="nearest"), Resize(size)]
        layers += _convolution(channels, channels)
    layers += [*_convolution(channels, first), *_convolution(first, second), nn.Conv2d(second, row[0], 3, padding=1)]
    return nn.Sequential(*layers, Resize((row[1], row[2])), nn.Sigmoid())


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
