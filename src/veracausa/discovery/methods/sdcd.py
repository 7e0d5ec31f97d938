"""SDCD (Nazaret et al. 2024) on observed data: first prune edges without any constraint, then grow a spectral one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa import seeding
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.acyclicity import Spectral
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.conditionals import Conditionals, batches
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.methods import method


@method("sdcd")
@dataclass(kw_only=True, eq=False, repr=False)
class SDCD(CausalDiscovery):
    """Strength = the norm of a column's weights into the other's hidden units."""

    fast_settings: ClassVar[Mapping[str, Any]] = {"epochs": 25, "batch": 100, "learning_rate": 0.03, "growth": 0.05}

    threshold: Threshold = 0.2
    pruning: float = 0.2
    """An edge weaker than this after the first stage is out; the constraint grows while stronger ones form a cycle."""
    hidden: int = 10
    sparsity: float = 0.01
    """Group lasso of the first stage."""
    final_sparsity: float = 5e-4
    """And of the second, where the constraint prunes too."""
    decay: float = 5e-3
    growth: float = 5e-3
    """How much the weight of the spectral term grows in an epoch, while the graph is not yet acyclic."""
    epochs: int = 600
    """Of each stage."""
    batch: int = 256
    learning_rate: float = 2e-3

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> NDArray[np.float64]:
        x = torch.from_numpy(data.values).float()
        d = x.shape[1]
        rng = seeding.generator(self.seed, "sdcd")
        mask = torch.ones(d, d)
        spectral = Spectral()

        def stage(number: int, sparsity: float, growth: float) -> torch.Tensor:
            network = Conditionals(d, [self.hidden], torch.sigmoid, rng)
            adam = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
            weight = 0.0
            for epoch in range(self.epochs):
                total = 0.0
                for rows in batches(len(x), self.batch, rng):
                    strengths = network.strengths() * mask
                    loss = network.negative_log_likelihood(x[rows], mask) + sparsity * strengths.sum()
                    loss = loss + self.decay * sum((layer**2).sum() for layer in network.deeper)
                    total += float(loss.detach())
                    if weight:
                        _, (slope,) = spectral(strengths.detach().double().numpy()[None])
                        loss = loss + weight * (torch.from_numpy(slope).float() * strengths).sum()
                    adam.zero_grad()
                    loss.backward()
                    adam.step()
                strengths = (network.strengths() * mask).detach()
                self._log(stage=number, epoch=epoch, loss=total, acyclicity_weight=weight)
                if growth and not is_acyclic((strengths >= self.pruning).numpy()):
                    weight += growth
                if time_is_up():
                    break
            return strengths

        first = stage(1, self.sparsity, 0.0)
        mask = (first >= self.pruning).float()
        if time_is_up():
            self.notes_ += ("sdcd: out of time before the second stage",)
            return first.double().numpy()
        return stage(2, self.final_sparsity, self.growth).double().numpy()
