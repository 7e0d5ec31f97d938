"""LPIPS's networks from files in the data folder: `lpips/*.safetensors`, checked before they are believed."""

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

from veracausa.data.files import data_folder, reading
from veracausa.errors import InputError, RunError

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
