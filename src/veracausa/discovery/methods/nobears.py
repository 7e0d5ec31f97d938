"""NO-BEARS (Lee et al. 2019): a polynomial regression under a spectral bound on W∘W, by power iterations and Adam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.acyclicity import Spectral, augmented_lagrangian
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.methods import method

DEGREE = 3
AVERAGING = 0.975


@method("nobears")
@dataclass(kw_only=True, eq=False, repr=False)
class NoBears(CausalDiscovery):
    """Strength = |weight| times the deviation of the source's polynomial: what an edge moves."""

    fast_settings: ClassVar[Mapping[str, Any]] = {"iterations": 10, "rounds": 1}

    sparsity: float = 0.05
    ridge: float = 0.1
    """Of the regression on all other columns that the weights start from."""
    rounds: int = 20
    iterations: int = 500
    """Steps of Adam in one minimisation."""
    learning_rate: float = 1e-2

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> NDArray[np.float64]:
        x = torch.from_numpy(data.values - data.values.mean(axis=0))
        n, d = x.shape
        off_diagonal = 1 - torch.eye(d, dtype=x.dtype)
        powers = torch.stack([x**k / (x**k).std(0).clamp_min(1e-12) for k in range(1, DEGREE + 1)], 2)
        powers = powers - powers.mean(0)
        # A separate cubic of each source, learned with the weights: it starts as the line.
        cubic = torch.zeros(d, DEGREE, dtype=x.dtype)
        cubic[:, 0] = 1
        gram = x.T @ x / n
        start = torch.linalg.solve(gram + self.ridge * torch.eye(d, dtype=x.dtype), gram) * off_diagonal
        spectral = Spectral(iterations=5)
        Pair = tuple[torch.Tensor, torch.Tensor]

        def radius(weights: torch.Tensor) -> tuple[float, torch.Tensor]:
            (value,), (slope,) = spectral((weights.detach() ** 2).numpy()[None])
            return float(value), torch.from_numpy(slope)

        def solve(state: Pair, multiplier: float, penalty: float) -> tuple[Pair, float]:
            weights, shape = (tensor.clone().requires_grad_(True) for tensor in state)
            average = weights.detach().clone()
            adam = torch.optim.Adam([weights, shape], lr=self.learning_rate)
            for step in range(self.iterations):
                if step % 50 == 0 and time_is_up():
                    break
                masked = weights * off_diagonal
                mean = (powers * shape).sum(2) @ masked
                rho, slope = radius(masked)
                loss = 0.5 * ((x - mean) ** 2).mean(0).sum() + self.sparsity * masked.abs().sum()
                loss = loss + (multiplier + penalty * rho) * (slope * masked**2).sum()
                adam.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                adam.step()
                average = AVERAGING * average + (1 - AVERAGING) * weights.detach() * off_diagonal
            return (average, shape.detach()), radius(average)[0]

        weights, shape = augmented_lagrangian(
            solve,
            (start, cubic),
            time_is_up=time_is_up,
            log=self._log,
            rounds=self.rounds,
            tolerance=1e-3,
            penalty_limit=1e6,
        )
        moved = (powers * shape).sum(2).std(0)
        return np.asarray((weights.abs() * moved[:, None]).numpy())
