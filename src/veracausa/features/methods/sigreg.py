"""SIGReg: views agree, and every random projection of the features is standard normal (LeJEPA, 2025)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from veracausa.features import feature_maps
from veracausa.features.self_supervised import SelfSupervised, SelfSupervisedOptions


class SigregOptions(SelfSupervisedOptions):
    name: str = "sigreg"
    projector: tuple[int, ...] = Field((512, 64), min_length=1)
    weight: float = Field(0.05, ge=0, le=1)
    """The share of the regularisation in the loss; agreement of the views has the rest."""
    slices: int = Field(256, ge=1)
    """Random directions at each step."""
    knots: int = Field(17, ge=3)
    """Points of the characteristic function that are compared."""
    reach: float = Field(3.0, gt=0)
    """The largest of these points."""


@feature_maps.register("sigreg", SigregOptions)
class Sigreg(SelfSupervised):
    """Features in which views agree, spread as an isotropic normal distribution so that they cannot collapse."""

    options: SigregOptions

    def loss(self, first: Tensor, second: Tensor, rng: torch.Generator) -> Tensor:
        options = self.options
        centre = (first + second) / 2
        agreement = ((first - centre).square().mean() + (second - centre).square().mean()) / 2
        directions = torch.randn(first.shape[1], options.slices, generator=rng, device=first.device)
        directions = directions / directions.norm(dim=0, keepdim=True)
        tests = [epps_pulley(z @ directions, options.knots, options.reach) for z in (first, second)]
        return (1 - options.weight) * agreement + options.weight * (tests[0] + tests[1]) / 2


def epps_pulley(values: Tensor, knots: int = 17, reach: float = 3.0) -> Tensor:
    """The Epps-Pulley statistic of n values against N(0, 1), as a mean over the columns of (n, slices) values.

    n ∫ |φ_n(t) - exp(-t²/2)|² exp(-t²/2) dt by the trapezoid rule. The integrand is even in t, so the positive half
    is taken twice.
    """
    t = torch.linspace(0, reach, knots, device=values.device)
    normal = torch.exp(-t.square() / 2)
    weights = torch.full_like(t, 2 * reach / (knots - 1))
    weights[[0, -1]] /= 2
    phases = values.unsqueeze(2) * t
    distance = (phases.cos().mean(0) - normal).square() + phases.sin().mean(0).square()
    return len(values) * (distance @ (weights * normal)).mean()
