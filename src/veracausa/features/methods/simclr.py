"""SimCLR: two views of a picture are told from all other pictures of the batch (Chen et al., 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from veracausa.features import feature_maps
from veracausa.features.self_supervised import SelfSupervised, SelfSupervisedOptions


class SimclrOptions(SelfSupervisedOptions):
    name: str = "simclr"
    temperature: float = Field(0.2, gt=0)
    """The lower, the more the most similar pictures count."""


@feature_maps.register("simclr", SimclrOptions)
class Simclr(SelfSupervised):
    """Features by which a network finds a picture's other view among the views of all others."""

    options: SimclrOptions

    def loss(self, first: Tensor, second: Tensor, rng: torch.Generator) -> Tensor:
        return nt_xent(first, second, self.options.temperature)


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """The mean over 2n views of the cross-entropy of finding the view's partner by cosine similarity (Eq. 1)."""
    n = len(first)
    both = F.normalize(torch.cat([first, second]), dim=1)
    similar = both @ both.T / temperature
    # A view is not its own candidate. A large number, not infinity: its gradient is zero without special cases.
    similar = similar.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=similar.device), -1e9)
    partner = torch.arange(2 * n, device=similar.device).roll(n)
    return F.cross_entropy(similar, partner)
