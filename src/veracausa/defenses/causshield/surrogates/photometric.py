"""Surrogates of images without learning (GS-P): gamma, contrast, background and the width of strokes change."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import Surrogate, SurrogateOptions, uniform


class PhotometricOptions(SurrogateOptions):
    """Photometric changes, drawn for each row."""

    gamma: float = Field(2.0, ge=1)
    """Gamma is drawn between its inverse and this, evenly in the exponent."""
    contrast: float = Field(0.3, ge=0, le=1)
    background: float = Field(0.2, ge=0, le=1)
    """The largest level that black is lifted to."""
    stroke: float = Field(0.5, ge=0, le=1)
    """How far towards one pixel of dilation or of erosion."""


@surrogates.register("photometric", PhotometricOptions)
class Photometric(Surrogate):
    """Changes how a row is exposed and how thick its strokes are."""

    suits = "images"
    options: PhotometricOptions

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        options, n = self.options, len(x)
        stroke = uniform(n, -options.stroke, options.stroke, rng, like=x)
        dilated, eroded = F.max_pool2d(x, 3, 1, 1), -F.max_pool2d(-x, 3, 1, 1)
        x = torch.where(stroke > 0, x + stroke * (dilated - x), x + stroke * (x - eroded))
        reach = math.log(options.gamma)
        x = x.clamp(0, 1) ** uniform(n, -reach, reach, rng, like=x).exp()
        mean = x.mean((-3, -2, -1), keepdim=True)
        x = mean + (x - mean) * uniform(n, 1 - options.contrast, 1 + options.contrast, rng, like=x)
        background = uniform(n, 0, options.background, rng, like=x)
        return background + (1 - background) * x
