"""Decomposition: CausShield's own loss, a row and its surrogate as the two views. The paper's objective, at home."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.defenses.causshield import losses
from veracausa.defenses.causshield.options import SurrogateChoice
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import Surrogate, as_float, batches, choose
from veracausa.features import feature_maps
from veracausa.features.base import FitContext, OwnRows
from veracausa.features.network_training import FitProgress
from veracausa.features.self_supervised import SelfSupervised, SelfSupervisedOptions
from veracausa.features.views import view
from veracausa.registry import Options


class DecompositionOptions(SelfSupervisedOptions):
    name: str = "decomposition"
    projector: tuple[int, ...] = Field((1024, 1024), min_length=1)
    surrogate: SurrogateChoice = Options(name="auto")
    """What the other view of a row is made by; auto: by the kind of picture, as in CausShield."""
    beta: float | Literal["auto", "cirl"] = "auto"
    """Weight of the off-diagonal correlations; 1 is the paper's."""
    augment: bool = True
    """Views are taken of the row and of its surrogate. false: the two as they are, which is the paper to the letter."""


@feature_maps.register("decomposition", DecompositionOptions)
class Decomposition(SelfSupervised):
    """Features that agree between a row and its surrogate, dimension by dimension, and differ from each other."""

    options: DecompositionOptions
    made: Tensor | None = None
    """(n, *shape) uint8: each row's surrogate. Only a fit has it."""

    def prepare(self, rows: OwnRows, context: FitContext, fit: FitProgress) -> None:
        maker = _maker(self.options.surrogate, tuple(rows.features.shape[1:]))
        pixels = rows.features.to(context.device)
        maker.fit(pixels, seeding.generator(fit.seed, "surrogate"), lambda share: context.progress(0.0))
        made = []
        draws = seeding.generator(fit.seed, "surrogates")
        for batch in batches(pixels):
            made.append(maker.make(as_float(pixels[batch]), draws).mul_(255).round_().to(torch.uint8))
            context.progress(0.0)
        self.made = torch.cat(made)

    def two_views(self, x: Tensor, positions: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        assert self.made is not None
        other = as_float(self.made[positions.to(self.made.device)])
        if not self.options.augment:
            return x, other
        return view(x, self.options.views, rng), view(other, self.options.views, rng)

    def loss(self, first: Tensor, second: Tensor, rng: torch.Generator) -> Tensor:
        beta = losses.off_diagonal_weight(self.options.beta, *first.shape)
        return losses.decomposition(first, second, beta)

    def fit(self, rows: OwnRows, context: FitContext) -> Array | None:
        try:
            return super().fit(rows, context)
        finally:
            self.made = None  # surrogates are of training rows: a map that is kept needs none of them


def _maker(options: Options, shape: tuple[int, ...]) -> Surrogate:
    name = choose(shape) if options.name == "auto" else options.name
    chosen = options if options.name == name else surrogates.options(name)(name=name)
    maker = surrogates.get(name)(chosen)
    maker.check(shape)
    return maker
