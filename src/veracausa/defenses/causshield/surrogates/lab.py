"""Surrogates of colour images (Eqs. 8–10): colours predicted from the luminance, luminance from the colours."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa.data.colour import lab_to_rgb, rgb_to_lab
from veracausa.defenses.causshield.surrogates import bins, surrogates
from veracausa.defenses.causshield.surrogates.cross_channel import CrossChannel, CrossChannelOptions


class LabOptions(CrossChannelOptions):
    """The paper's surrogates. Its text keeps the luminance, its equations predict it: `l_source` decides."""

    l_source: Literal["original", "predicted", "blend"] = "original"
    """predicted: to the letter. Luminance can hardly be predicted from colours, so this loses most of the structure."""
    blend: float = Field(0.5, ge=0, le=1)
    """The share of the predicted luminance with `l_source = "blend"`."""
    ab_target: Literal["soft", "hard"] = "soft"


@surrogates.register("lab", LabOptions)
class Lab(CrossChannel):
    """Recolours each row as the party's other rows of such luminance are coloured."""

    suits = "colour images"
    options: LabOptions
    scale = 110.0

    def __init__(self, options: LabOptions) -> None:
        super().__init__(options)
        self.centres = bins.ab_bins()
        self.sigma = 5.0 if options.ab_target == "soft" else 0.0
        self.structure_from_a2 = {"original": 0.0, "predicted": 1.0, "blend": options.blend}[options.l_source]

    def decompose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        lab = rgb_to_lab(x)
        return (lab[:, :1] - 50) / 100, lab[:, 1:]

    def recompose(self, structure: Tensor, values: Tensor) -> Tensor:
        return lab_to_rgb(torch.cat((structure * 100 + 50, values), dim=1), clip=False)
