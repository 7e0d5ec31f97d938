"""A small network from a representation to so many scores: DISCO's pruner, and the head of ResSFL's pretraining."""

from __future__ import annotations

import math
from typing import Literal

from torch import nn

from veracausa.models.decoders import LinearResidualBlock
from veracausa.models.zoo.resnet import BasicBlock

Depth = Literal["lite", "deep"]

_LITE_CONVOLUTIONS, _LITE_WIDTH = 3, 64
_WIDEST, _BLOCKS = 512, 2
_MLP_WIDTH, _MLP_BLOCKS = 128, 4


def score_net(shape: tuple[int, ...], outputs: int, depth: Depth = "lite") -> nn.Sequential:
    """From one representation of `shape` to `outputs` scores.

    For maps, `lite` is three strided convolutions and `deep` what is left of a ResNet-18 behind a map of that many
    channels; for vectors both are MLPs.
    """
    if len(shape) != 3:
        return _mlp(math.prod(shape), outputs, depth)
    build = _lite if depth == "lite" else _deep
    layers, channels = build(shape[0], min(shape[1:]))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs))


def _stride(side: int) -> int:
    # No step of two over a side of one pixel: on a CPU, bf16 leaves the unused weights' gradients unset there.
    return 2 if side > 1 else 1


def _lite(channels: int, side: int) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    for _ in range(_LITE_CONVOLUTIONS):
        convolution = nn.Conv2d(channels, _LITE_WIDTH, 3, _stride(side), padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(_LITE_WIDTH), nn.ReLU()]
        channels, side = _LITE_WIDTH, -(-side // 2)
    return layers, channels


def _deep(channels: int, side: int) -> tuple[list[nn.Module], int]:
    """Stages of two blocks, each of twice the channels at half the size, to 512 channels or one pixel; one at least."""
    layers: list[nn.Module] = []
    while not layers or (channels < _WIDEST and side > 1):
        wider = min(2 * channels, max(_WIDEST, channels))
        layers += [BasicBlock(channels, wider, _stride(side))]
        layers += [BasicBlock(wider, wider, 1) for _ in range(_BLOCKS - 1)]
        channels, side = wider, -(-side // 2)
    return layers, channels


def _mlp(features: int, outputs: int, depth: Depth) -> nn.Sequential:
    blocks = _MLP_BLOCKS if depth == "deep" else 1
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(features, _MLP_WIDTH),
        *(LinearResidualBlock(_MLP_WIDTH) for _ in range(blocks)),
        nn.BatchNorm1d(_MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(_MLP_WIDTH, outputs),
    )
