"""Surrogates of colour images without learning: random brightness, contrast, saturation and hue."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import Surrogate, SurrogateOptions, uniform


class JitterOptions(SurrogateOptions):
    """Colour jitter; each strength is the largest change, and 0 leaves that property alone."""

    brightness: float = Field(0.2, ge=0, le=1)
    contrast: float = Field(0.2, ge=0, le=1)
    saturation: float = Field(0.5, ge=0, le=1)
    hue: float = Field(0.5, ge=0, le=0.5)
    """In turns of the colour circle; 0.5 reaches every hue."""


@surrogates.register("jitter", JitterOptions)
class Jitter(Surrogate):
    """Jitters the colours of each row: the augmentation that learnt surrogates have to beat."""

    suits = "colour images"
    options: JitterOptions

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        options, n = self.options, len(x)
        x = x * uniform(n, 1 - options.brightness, 1 + options.brightness, rng, like=x)
        mean = _luma(x).mean((-2, -1), keepdim=True)
        x = mean + (x - mean) * uniform(n, 1 - options.contrast, 1 + options.contrast, rng, like=x)
        saturation = uniform(n, 1 - options.saturation, 1 + options.saturation, rng, like=x)
        angle = 2 * math.pi * uniform(n, -options.hue, options.hue, rng, like=x)
        return _rotated(x, saturation, angle)


def _luma(x: Tensor) -> Tensor:
    red, green, blue = x[:, :1], x[:, 1:2], x[:, 2:]
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _rotated(x: Tensor, saturation: Tensor, angle: Tensor) -> Tensor:
    """The colours turned in the plane of blue and red differences; the luma stays."""
    luma = _luma(x)
    blue, red = (x[:, 2:] - luma) * 0.564, (x[:, :1] - luma) * 0.713
    cos, sin = saturation * angle.cos(), saturation * angle.sin()
    blue, red = cos * blue - sin * red, sin * blue + cos * red
    red, blue = luma + red / 0.713, luma + blue / 0.564
    return torch.cat((red, (luma - 0.299 * red - 0.114 * blue) / 0.587, blue), dim=1)
