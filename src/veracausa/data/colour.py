"""sRGB and CIELAB (D65), differentiable: what an image says in luminance, and what it says in colour.

Images are (…, 3, H, W). RGB is in [0, 1], L in [0, 100]; for colours that sRGB can show, a is in [-86.2, 98.2] and b in
[-107.9, 94.5]. Every formula has a straight piece near black, and each power is clamped to its own side of the joint:
`where` would otherwise let the infinite slope of the side that was not taken into the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TO_XYZ = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
_FROM_XYZ = tuple(tuple(row) for row in torch.linalg.inv(torch.tensor(_TO_XYZ, dtype=torch.float64)).tolist())
_WHITE = (0.95047, 1.0, 1.08883)
_MID_GREY = 50.0


def rgb_to_lab(x: Tensor) -> Tensor:
    """L, a and b of sRGB values; finite gradients everywhere, black included."""
    x, y, z = (value / white for value, white in zip(_mixed(_linear(x), _TO_XYZ), _WHITE, strict=True))
    fx, fy, fz = _root(x), _root(y), _root(z)
    return torch.stack((116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)), dim=-3)


def lab_to_rgb(lab: Tensor, clip: bool = True) -> Tensor:
    """sRGB values in [0, 1]; with `clip=False` as they come, so that what lies out of gamut can be seen."""
    lightness, a, b = lab.unbind(-3)
    fy = (lightness + 16) / 116
    cubes = (_cube(fy + a / 500), _cube(fy), _cube(fy - b / 200))
    xyz = torch.stack([value * white for value, white in zip(cubes, _WHITE, strict=True)], dim=-3)
    rgb = _gamma(torch.stack(_mixed(xyz, _FROM_XYZ), dim=-3))
    return rgb.clamp(0, 1) if clip else rgb


def without_chroma(x: Tensor) -> Tensor:
    """The image in grey: its luminance alone (a = b = 0)."""
    lab = rgb_to_lab(x)
    return lab_to_rgb(torch.cat((lab[..., :1, :, :], torch.zeros_like(lab[..., 1:, :, :])), dim=-3))


def without_luminance(x: Tensor) -> Tensor:
    """The image in its colours alone, all equally light (L = 50); clipped where sRGB has no such colour."""
    lab = rgb_to_lab(x)
    return lab_to_rgb(torch.cat((torch.full_like(lab[..., :1, :, :], _MID_GREY), lab[..., 1:, :, :]), dim=-3))


def _mixed(x: Tensor, matrix: tuple[tuple[float, ...], ...]) -> list[Tensor]:
    # Written out: a matrix product would be done in bfloat16 under autocast, and in TF32 on some GPUs.
    first, second, third = x.unbind(-3)
    return [row[0] * first + row[1] * second + row[2] * third for row in matrix]


def _linear(x: Tensor) -> Tensor:
    return torch.where(x > 0.04045, ((x.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4, x / 12.92)


def _gamma(x: Tensor) -> Tensor:
    return torch.where(x > 0.0031308, 1.055 * x.clamp(min=0.0031308) ** (1 / 2.4) - 0.055, 12.92 * x)


def _root(t: Tensor) -> Tensor:
    return torch.where(t > 0.008856, t.clamp(min=0.008856) ** (1 / 3), 7.787 * t + 16 / 116)


def _cube(g: Tensor) -> Tensor:
    return torch.where(g > 0.206893, g**3, (g - 16 / 116) / 7.787)
