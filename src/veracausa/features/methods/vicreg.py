"""VICReg: views agree, every feature varies, and no two features say the same (Bardes et al., 2022)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from veracausa.features import feature_maps
from veracausa.features.self_supervised import SelfSupervised, SelfSupervisedOptions


class VicregOptions(SelfSupervisedOptions):
    name: str = "vicreg"
    projector: tuple[int, ...] = Field((1024, 1024), min_length=1)
    invariance: float = Field(25.0, ge=0)
    """Weight of the squared distance between two views."""
    variance: float = Field(25.0, ge=0)
    """Weight of what a feature's spread lacks of 1."""
    covariance: float = Field(1.0, ge=0)
    """Weight of the squared covariances between features."""


@feature_maps.register("vicreg", VicregOptions)
class Vicreg(SelfSupervised):
    """Features in which views agree while variance and covariance terms keep them from collapsing."""

    options: VicregOptions

    def loss(self, first: Tensor, second: Tensor, rng: torch.Generator) -> Tensor:
        options = self.options
        invariance = F.mse_loss(first, second)
        variance = (variance_term(first) + variance_term(second)) / 2
        covariance = covariance_term(first) + covariance_term(second)
        return options.invariance * invariance + options.variance * variance + options.covariance * covariance


def variance_term(z: Tensor, eps: float = 1e-4) -> Tensor:
    """The mean over features of what the standard deviation lacks of 1 (Eq. 1)."""
    return F.relu(1 - (z.var(0) + eps).sqrt()).mean()


def covariance_term(z: Tensor) -> Tensor:
    """The sum of squared covariances of different features, over the number of features (Eq. 4)."""
    centred = z - z.mean(0)
    covariance = centred.T @ centred / max(1, len(z) - 1)
    return (covariance.square().sum() - covariance.diagonal().square().sum()) / z.shape[1]
