"""DCDI (Brouillard et al. 2020) on observed data: networks behind random edge masks of learned probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa import seeding
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.base import CausalDiscovery, Threshold
from veracausa.discovery.conditionals import Conditionals, batches, descend, gumbel_sigmoid
from veracausa.discovery.methods import method


@method("dcdi")
@dataclass(kw_only=True, eq=False, repr=False)
class DCDI(CausalDiscovery):
    """Strength = the probability of the edge. Gaussian likelihood with a learned variance (DCDI-G)."""

    fast_settings: ClassVar[Mapping[str, Any]] = {"epochs": 2}

    threshold: Threshold = 0.5
    hidden: int = 16
    sparsity: float = 0.005
    epochs: int = 600
    batch: int = 64
    learning_rate: float = 5e-3
    structure_rate: float = 1e-2
    """Of the edges' log-odds, which have a longer way to go than weights."""

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> NDArray[np.float64]:
        x = torch.from_numpy(data.values).float()
        d = x.shape[1]
        rng = seeding.generator(self.seed, "dcdi")
        network = Conditionals(d, [self.hidden, self.hidden], torch.tanh, rng)
        logits = torch.full((d, d), 4.0, requires_grad=True)

        def probabilities() -> torch.Tensor:
            return torch.sigmoid(logits) * network.off_diagonal

        def loss(rows: torch.Tensor) -> torch.Tensor:
            mask = gumbel_sigmoid(logits, len(rows), rng)
            return network.negative_log_likelihood(x[rows], mask) + self.sparsity * probabilities().sum()

        descend(
            loss,
            probabilities,
            list(network.parameters()),
            [logits],
            epochs=self.epochs,
            batches=lambda: batches(len(x), self.batch, rng),
            learning_rate=self.learning_rate,
            structure_rate=self.structure_rate,
            time_is_up=time_is_up,
            log=self._log,
        )
        return probabilities().detach().double().numpy()
