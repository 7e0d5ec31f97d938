"""LPIPS (Zhang et al. 2018), version 0.1: how different two pictures look to a trained network, a value a sample.

The distance is a weighted squared one between normalised feature maps, so it is also the squared Euclidean distance
between two vectors (`embedding`): a thousand candidates are compared without passing any pair through the network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor
from torch.nn import functional as F

from veracausa.data.files import data_folder, reading
from veracausa.errors import InputError, RunError

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

    Args:
        guess: The reconstructions.
        truth: The pictures they stand for, in the same order and shape.
        network: What `load_lpips` gives.
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


Backbone = Literal["alex", "squeeze"]
BACKBONES: tuple[Backbone, ...] = get_args(Backbone)

LINEAR = "lpips_lin_v0.1.safetensors"
FILES: Mapping[Backbone, str] = {
    "alex": "alexnet_features_fp32.safetensors",
    "squeeze": "squeezenet1_1_fp16.safetensors",
}
SHA256 = {
    "alexnet_features_fp32.safetensors": "e0c7f5f633fe853f34a9fc6475ef6f5e69da1f319bac1bb8c004ca8620866096",
    "squeezenet1_1_fp16.safetensors": "11808abf4a2087bb5401d223328db49a02e7fa42cf250514e17230fc92b7338d",
    LINEAR: "15e7d30b23a430c837a4d8d9b2a4aacdff0d2f5d1164e2c598f10b5c48f59011",
}

FIRES = {3: (64, 16, 64), 4: (128, 16, 64), 6: (128, 32, 128), 7: (256, 32, 128)} | {
    9: (256, 48, 192),
    10: (384, 48, 192),
    11: (384, 64, 256),
    12: (512, 64, 256),
}
"""SqueezeNet 1.1's fire modules by their number among its features: channels in, squeezed, and of each expansion."""


class Unavailable(RunError):
    """A metric has no value here; `reason` says why, for the report to print in its place."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class LpipsNetwork:
    """A backbone with LPIPS's channel weights, version 0.1; float32, on one device."""

    backbone: Backbone
    weights: Mapping[str, Tensor]
    linear: tuple[Tensor, ...]
    """Of each feature map, the channels' weights."""


def load_lpips(backbone: Backbone, device: torch.device | str = "cpu", folder: Path | None = None) -> LpipsNetwork:
    """The network from `folder`, else from `lpips` in the data folder; `Unavailable` where the files are not there."""
    if backbone not in BACKBONES:
        raise InputError(f"LPIPS has no backbone {backbone!r}; choose one of {', '.join(BACKBONES)}")
    folder = data_folder() / "lpips" if folder is None else folder
    if missing := [name for name in (FILES[backbone], LINEAR) if not (folder / name).is_file()]:
        raise Unavailable(f"LPIPS ({backbone}) is unavailable: {folder} has no {' and no '.join(missing)}")
    read = _checked(folder / FILES[backbone], _backbone_shapes(backbone))
    linear = _checked(folder / LINEAR, _linear_shapes(backbone))
    return LpipsNetwork(
        backbone,
        {name: value.to(device, torch.float32) for name, value in read.items()},
        tuple(value.to(device, torch.float32) for value in linear.values()),
    )


def _checked(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors named in `shapes`, in that order, of a file that is the published one to the last byte."""
    with reading(path):
        content = path.read_bytes()
    found, expected = hashlib.sha256(content).hexdigest(), SHA256[path.name]
    if found != expected:
        raise InputError(f"{path}: not the published weights: SHA-256 {found}, expected {expected}; copy the file anew")
    try:
        tensors = load_tensors(content)
    except SafetensorError as error:
        raise InputError(f"{path}: not a safetensors file ({error}); copy the file anew") from None
    for name, shape in shapes.items():
        there = tuple(tensors[name].shape) if name in tensors else None
        if there != shape:
            raise InputError(f"{path}: {name} is {there or 'missing'}, expected {shape}; copy the file anew")
    return {name: tensors[name] for name in shapes}


def _backbone_shapes(backbone: Backbone) -> dict[str, tuple[int, ...]]:
    if backbone == "alex":
        layers = {0: (64, 3, 11), 3: (192, 64, 5), 6: (384, 192, 3), 8: (256, 384, 3), 10: (256, 256, 3)}
        convolutions = {f"features.{number}": shape for number, shape in layers.items()}
    else:
        convolutions = {"features.0": (64, 3, 3)}
        for number, (channels, squeezed, expanded) in FIRES.items():
            convolutions[f"features.{number}.squeeze"] = (squeezed, channels, 1)
            convolutions[f"features.{number}.expand1x1"] = (expanded, squeezed, 1)
            convolutions[f"features.{number}.expand3x3"] = (expanded, squeezed, 3)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (out, into, side) in convolutions.items():
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (out, into, side, side), (out,)
    return shapes


def _linear_shapes(backbone: Backbone) -> dict[str, tuple[int, ...]]:
    channels = (64, 192, 384, 256, 256) if backbone == "alex" else (64, 128, 256, 384, 384, 512, 512)
    return {f"{backbone}.lin{number}": (count,) for number, count in enumerate(channels)}
