"""Surrogates of grey images, close in form to Eqs. 8–10 (GS-I): intensities from edges, edges from intensities."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from veracausa.defenses.causshield.surrogates import bins, surrogates
from veracausa.defenses.causshield.surrogates.cross_channel import CrossChannel, CrossChannelOptions

BINS = 16


class IntensityOptions(CrossChannelOptions):
    """The learnt surrogates of images without colour."""

    target: Literal["soft", "hard"] = "soft"
    """hard: all mass on the nearest intensity, as Eq. 8 is printed."""


def edges(x: Tensor) -> Tensor:
    """The magnitude of the gradient, 1 where it is largest in the image."""
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    down = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
    across = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
    magnitude = (down.square() + across.square()).sqrt()
    return magnitude / magnitude.amax((-2, -1), keepdim=True).clamp(min=1e-6)


@surrogates.register("intensity", IntensityOptions)
class Intensity(CrossChannel):
    """Fills each row's edges as the party's other rows are filled."""

    suits = "grey images"
    options: IntensityOptions
    scale = 1.0
    structure_from_a2 = 1.0

    def __init__(self, options: IntensityOptions) -> None:
        super().__init__(options)
        self.centres = bins.intensity_bins(BINS)
        self.sigma = 0.5 / BINS if options.target == "soft" else 0.0  # half a bin, as for colours

    def decompose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return edges(x), x

    def recompose(self, structure: Tensor, values: Tensor) -> Tensor:
        # Modulated about its mean: edges come out stronger and planes fainter, the image as bright as it was.
        structure = torch.clamp(structure, 0, 1)
        return values * (1 + structure - structure.mean((-2, -1), keepdim=True))
