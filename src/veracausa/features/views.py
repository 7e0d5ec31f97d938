"""Another view of a picture: cropped, flipped, recoloured. One draw a row, for a whole batch at once, on its device."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from veracausa import seeding
from veracausa.errors import InputError

LUMA = (0.299, 0.587, 0.114)
RATIO = math.log(4 / 3)
"""A crop is at most so much wider than the picture's own shape, or narrower, as a logarithm."""


class ViewOptions(BaseModel):
    """How far a view may be from its picture. 0 leaves a property alone, as 1 does for `crop`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    crop: float = Field(0.25, gt=0, le=1)
    """The least share of the picture that a crop keeps."""
    flip: float = Field(0.5, ge=0, le=1)
    """How often left and right change places."""
    jitter: float = Field(0.8, ge=0, le=1)
    """How often brightness, contrast, saturation and hue change."""
    brightness: float = Field(0.4, ge=0, le=1)
    contrast: float = Field(0.4, ge=0, le=1)
    saturation: float = Field(0.4, ge=0, le=1)
    hue: float = Field(0.1, ge=0, le=0.5)
    """In turns of the colour circle."""
    greyscale: float = Field(0.2, ge=0, le=1)
    """How often all colour goes."""


def generator_on(device: torch.device, seed: int, *purpose: str | int) -> torch.Generator:
    """A generator on the device of the tensors, for one purpose."""
    return torch.Generator(device).manual_seed(seeding.derive(seed, *purpose))


def view(x: Tensor, options: ViewOptions, rng: torch.Generator) -> Tensor:
    """A view of each picture of (n, 1 or 3, height, width) values in [0, 1]; `rng` lives on their device."""
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        raise InputError(f"views are of pictures with 1 or 3 channels, and these rows have shape {tuple(x.shape[1:])}")
    return recoloured(cropped(x, options, rng), options, rng)


def cropped(x: Tensor, options: ViewOptions, rng: torch.Generator) -> Tensor:
    """A part of each picture, flipped or not, in the size of the whole."""
    n = len(x)
    # Drawn whether they are needed or not: a setting then changes what it names and no other draw.
    share = _uniform(n, options.crop, 1.0, rng, x)
    ratio = (_uniform(n, -RATIO, RATIO, rng, x) * (options.crop < 1)).exp()
    height = (share * ratio).sqrt().clamp(max=1)
    width = (share / ratio).sqrt().clamp(max=1)
    down, across = (_uniform(n, -1.0, 1.0, rng, x) for _ in range(2))
    sign = torch.where(_chance(n, options.flip, rng, x), -1.0, 1.0)
    zero = torch.zeros_like(share)
    # In the coordinates of a grid the picture is [-1, 1]: the crop is as large as its scale, and may move by the rest.
    rows = torch.stack([sign * width, zero, across * (1 - width), zero, height, down * (1 - height)], 1)
    grid = F.affine_grid(rows.view(n, 2, 3).float(), list(x.shape), align_corners=False)
    return F.grid_sample(x.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False).to(x)


def recoloured(x: Tensor, options: ViewOptions, rng: torch.Generator) -> Tensor:
    """Each picture with other brightness and contrast, and where it has colours other saturation and hue."""
    n = len(x)
    changed = _chance(n, options.jitter, rng, x).to(x)

    def around_one(reach: float) -> Tensor:
        return (1 + changed * _uniform(n, -reach, reach, rng, x)).view(n, 1, 1, 1)

    x = x * around_one(options.brightness)
    mean = _luma(x).mean((1, 2, 3), keepdim=True)
    x = mean + (x - mean) * around_one(options.contrast)
    if x.shape[1] == 3:
        saturation = around_one(options.saturation).flatten()
        angle = changed * 2 * math.pi * _uniform(n, -options.hue, options.hue, rng, x)
        saturation = torch.where(_chance(n, options.greyscale, rng, x), 0.0, saturation)
        x = torch.einsum("nij,njhw->nihw", _colour_matrix(saturation, angle), x)
    return x.clamp(0, 1)


def _colour_matrix(saturation: Tensor, angle: Tensor) -> Tensor:
    """(n, 3, 3): colours turned and stretched in the plane of red and blue differences; the luma stays."""
    luma = saturation.new_tensor(LUMA)
    grey = luma.expand(3, 3)
    unit = torch.eye(3, device=luma.device, dtype=luma.dtype)
    # From (luma, blue, red) differences back to colours, and the way there.
    back = torch.stack([torch.stack([luma.new_zeros(()), luma.new_ones(())]), luma.new_zeros(2), luma.new_zeros(2)])
    back[2] = luma.new_tensor([1.0, 0.0])
    back[1] = luma.new_tensor([-LUMA[2] / LUMA[1], -LUMA[0] / LUMA[1]])
    there = torch.stack([unit[2] - luma, unit[0] - luma])
    cos, sin = saturation * angle.cos(), saturation * angle.sin()
    turned = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    return grey + torch.einsum("ic,ncd,dj->nij", back, turned, there)


def _luma(x: Tensor) -> Tensor:
    if x.shape[1] == 1:
        return x
    return (x * x.new_tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)


def _uniform(n: int, low: float, high: float, rng: torch.Generator, like: Tensor) -> Tensor:
    return torch.rand(n, generator=rng, device=like.device, dtype=torch.float32) * (high - low) + low


def _chance(n: int, share: float, rng: torch.Generator, like: Tensor) -> Tensor:
    return torch.rand(n, generator=rng, device=like.device, dtype=torch.float32) < share
