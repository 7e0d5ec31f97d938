"""DCD-FG (Lopez et al. 2022): columns act on each other through a few factors, so the graph has a low rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa import seeding
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.conditionals import batches, descend, gaussian_loss, gumbel_softmax
from veracausa.discovery.methods import method

NEITHER = 2
"""The last of a column's three sides of a factor."""


@method("dcdfg")
@dataclass(kw_only=True, eq=False, repr=False)
class DCDFG(CausalDiscovery):
    """Strength = the probability that some factor leads from the one column to the other."""

    fast_settings: ClassVar[Mapping[str, Any]] = {"epochs": 2, "factors": 4}

    threshold: Threshold = 0.5
    factors: int = 10
    hidden: int = 16
    sparsity: float = 0.005
    epochs: int = 600
    batch: int = 128
    learning_rate: float = 5e-3
    structure_rate: float = 3e-2
    """Of the edges' log-odds, which have a longer way to go than weights."""

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> NDArray[np.float64]:
        x = torch.from_numpy(data.values).float()
        d, m = x.shape[1], self.factors
        rng = seeding.generator(self.seed, "dcdfg")

        def uniform(fan_in: int, *shape: int) -> torch.Tensor:
            return ((2 * torch.rand(shape, generator=rng) - 1) / math.sqrt(fan_in)).requires_grad_(True)

        encode, bend, decode = uniform(d, d, m, self.hidden), uniform(1, m, self.hidden), uniform(m, m, self.hidden, d)
        bias = torch.zeros(d, requires_grad=True)
        log_variance = torch.zeros(d, requires_grad=True)
        # A column leads into a factor, out of it, or neither: both would let it explain itself. Drawn at random,
        # because a start that is the same for every pair would never break its cycles.
        sides = torch.randn((d, m, 3), generator=rng)
        sides[:, :, NEITHER] -= 1
        sides.requires_grad_(True)
        off_diagonal = 1 - torch.eye(d)

        def probabilities() -> torch.Tensor:
            """(d, d): that some factor leads from the one column to the other."""
            into, out_of = torch.softmax(sides, 2)[:, :, :NEITHER].unbind(2)
            return (1 - torch.prod(1 - into[:, :, None] * out_of.T[None], 1)) * off_diagonal

        def loss(rows: torch.Tensor) -> torch.Tensor:
            batch = x[rows]
            into, out_of, _ = gumbel_softmax(sides, len(rows), rng).unbind(3)
            hidden = torch.tanh(torch.einsum("nif,ifh->nfh", batch[:, :, None] * into, encode) + bend)
            mean = torch.einsum("njf,nfh,fhj->nj", out_of, hidden, decode) + bias
            edges = torch.softmax(sides, 2)[:, :, :NEITHER].sum()
            return gaussian_loss(batch, mean, log_variance) + self.sparsity * edges

        descend(
            loss,
            probabilities,
            [encode, bend, decode, bias, log_variance],
            [sides],
            epochs=self.epochs,
            batches=lambda: batches(len(x), self.batch, rng),
            learning_rate=self.learning_rate,
            structure_rate=self.structure_rate,
            time_is_up=time_is_up,
            log=self._log,
        )
        return np.asarray(probabilities().detach().double().numpy())
