"""LPIPS (Zhang et al. 2018), version 0.1: how different two pictures look to a trained network, a value a sample.

The distance is a weighted squared one between normalised feature maps, so it is also the squared Euclidean distance
between two vectors (`embedding`): a thousand candidates are compared without passing any pair through the network.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa.metrics.lpips_weights import FIRES, LpipsNetwork, Unavailable, load_lpips

__all__ = ["LpipsNetwork", "Unavailable", "embedding", "load_lpips", "lpips"]

SMALLEST_SIDE = 64
_SHIFT = (-0.030, -0.088, -0.188)
_SCALE = (0.458, 0.448, 0.450)
_ROWS_AT_ONCE = 64
_POOLED_BEFORE = (3, 6, 9)
_TAKEN_AFTER = (4, 7, 9, 10, 11, 12)


def lpips(guess: Tensor, truth: Tensor, network: LpipsNetwork) -> Tensor:
    """(n,) LPIPS of (n, 1 or 3, h, w) pictures in [0, 1]; 0 is the same picture, differentiable in both.

    Greyscale counts as three equal channels; a side below 64 pixels is stretched to 64 (bilinear).
    """
    if guess.shape != truth.shape:
        raise ValueError(f"{tuple(guess.shape)} cannot be compared with {tuple(truth.shape)}: not the same shape")
    parts = zip(torch.split(guess, _ROWS_AT_ONCE), torch.split(truth, _ROWS_AT_ONCE), strict=True)
    found = [(_embedded(one, network) - _embedded(other, network)).square().sum(1) for one, other in parts]
    return torch.cat(found) if found else guess.new_zeros(0)


def embedding(pictures: Tensor, network: LpipsNetwork) -> Tensor:
    """(n, features) vectors whose squared Euclidean distances are LPIPS."""
    return torch.cat([_embedded(part, network) for part in torch.split(pictures, _ROWS_AT_ONCE)])


def _embedded(pictures: Tensor, network: LpipsNetwork) -> Tensor:
    values = _prepared(pictures, network.linear[0].device)
    # TensorFloat-32 would cost the third decimal of a figure that is compared with published ones.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        maps = _alexnet(values, network) if network.backbone == "alex" else _squeezenet(values, network)
    parts = []
    for features, weights in zip(maps, network.linear, strict=True):
        # The floor is for the gradient alone: a root has none at 0, where all channels are silent.
        length = features.square().sum(1, keepdim=True).clamp_min(1e-20).sqrt()
        unit = features / (length + 1e-10)
        pixels = features.shape[2] * features.shape[3]
        parts.append((unit * (weights / pixels).sqrt().view(1, -1, 1, 1)).flatten(1))
    return torch.cat(parts, 1)


def _prepared(pictures: Tensor, device: torch.device) -> Tensor:
    if pictures.ndim != 4 or pictures.shape[1] not in (1, 3):
        raise ValueError(f"lpips compares (n, 1 or 3, h, w) pictures, not {tuple(pictures.shape)}")
    values = pictures.to(device, torch.float32).expand(-1, 3, -1, -1) * 2 - 1
    height, width = values.shape[2:]
    if min(height, width) < SMALLEST_SIDE:
        size = (max(height, SMALLEST_SIDE), max(width, SMALLEST_SIDE))
        values = F.interpolate(values, size, mode="bilinear", align_corners=False)
    shift, scale = (torch.tensor(v, device=device).view(1, 3, 1, 1) for v in (_SHIFT, _SCALE))
    return (values - shift) / scale


def _alexnet(values: Tensor, network: LpipsNetwork) -> list[Tensor]:
    maps = []
    for number, stride, padding in ((0, 4, 2), (3, 1, 2), (6, 1, 1), (8, 1, 1), (10, 1, 1)):
        if number in (3, 6):
            values = F.max_pool2d(values, 3, 2)
        values = _convolved(values, network, f"features.{number}", stride, padding)
        maps.append(values)
    return maps


def _squeezenet(values: Tensor, network: LpipsNetwork) -> list[Tensor]:
    values = _convolved(values, network, "features.0", stride=2)
    maps = [values]
    for number in FIRES:
        if number in _POOLED_BEFORE:
            values = F.max_pool2d(values, 3, 2, ceil_mode=True)
        squeezed = _convolved(values, network, f"features.{number}.squeeze")
        expanded = [
            _convolved(squeezed, network, f"features.{number}.expand1x1"),
            _convolved(squeezed, network, f"features.{number}.expand3x3", padding=1),
        ]
        values = torch.cat(expanded, 1)
        if number in _TAKEN_AFTER:
            maps.append(values)
    return maps


def _convolved(values: Tensor, network: LpipsNetwork, name: str, stride: int = 1, padding: int = 0) -> Tensor:
    weights = network.weights
    return F.conv2d(values, weights[f"{name}.weight"], weights[f"{name}.bias"], stride, padding).relu()
