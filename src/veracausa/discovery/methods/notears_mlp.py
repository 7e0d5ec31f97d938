"""NO-TEARS with networks (Zheng et al. 2020): one hidden layer a column, the constraint on the first layer's norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.acyclicity import TimeLimitReached, augmented_lagrangian
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.conditionals import Conditionals
from veracausa.discovery.methods import method


@method("notears_mlp")
@dataclass(kw_only=True, eq=False, repr=False)
class NoTearsMLP(CausalDiscovery):
    """Strength = the norm of a column's weights into the other's hidden units; squared loss, as published."""

    fast_settings: ClassVar[Mapping[str, Any]] = {"iterations": 10, "rounds": 2}

    hidden: int = 10
    sparsity: float = 0.01
    decay: float = 0.01
    rounds: int = 100
    iterations: int = 1000
    """Of L-BFGS-B in one minimisation."""

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        from scipy.optimize import minimize

        x = torch.from_numpy(data.values - data.values.mean(axis=0))
        d = x.shape[1]
        network = Conditionals(d, [self.hidden], torch.sigmoid, seeding.generator(self.seed, "notears-mlp")).double()
        rest = [value for name, value in network.named_parameters() if name not in ("first", "log_variance")]
        block = network.first.numel()
        diagonal = np.broadcast_to(np.eye(d, dtype=bool)[:, :, None], network.first.shape).ravel()
        bounds: list[tuple[float | None, float | None]]
        bounds = [(0.0, 0.0) if own else (0.0, None) for own in np.concatenate([diagonal, diagonal])]
        bounds += [(None, None)] * sum(value.numel() for value in rest)

        def spread(point: Array) -> None:
            first = torch.from_numpy(point[:block] - point[block : 2 * block])
            values = torch.split(torch.from_numpy(point[2 * block :]), [value.numel() for value in rest])
            with torch.no_grad():
                for parameter, value in zip((network.first, *rest), (first, *values), strict=True):
                    parameter.copy_(value.view_as(parameter))

        best: list[Array] = []

        def solve(start: Array, multiplier: float, penalty: float) -> tuple[Array, float]:
            def objective(point: Array) -> tuple[float, Array]:
                if time_is_up():
                    raise TimeLimitReached
                spread(point)
                network.zero_grad()
                h = _trace_exponential(network)
                loss = 0.5 * ((x - network(x)) ** 2).mean(0).sum() + multiplier * h + 0.5 * penalty * h * h
                loss = loss + 0.5 * self.decay * sum((value**2).sum() for value in (network.first, *network.deeper))
                loss.backward()
                slope = _gradient(network.first)
                pieces = [slope + self.sparsity, -slope + self.sparsity, *map(_gradient, rest)]
                best[:] = [point.copy()]
                return float(loss.detach()) + self.sparsity * point[: 2 * block].sum(), np.concatenate(pieces)

            try:
                found = minimize(
                    objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": self.iterations}
                ).x
            except TimeLimitReached:
                found = best[0] if best else start
            spread(found)
            return found, float(_trace_exponential(network).detach())

        # The first layer starts at zero, an acyclic graph; the others break the symmetry.
        start = np.concatenate([np.zeros(2 * block), *(value.detach().numpy().ravel() for value in rest)])
        point = augmented_lagrangian(solve, start, time_is_up=time_is_up, log=self._log, rounds=self.rounds)
        spread(point)
        return network.strengths().detach().numpy()


def _trace_exponential(network: Conditionals) -> Tensor:
    squares = (network.first**2).sum(2) * network.off_diagonal
    return torch.matrix_exp(squares).trace() - len(squares)


def _gradient(parameter: Tensor) -> Array:
    return np.zeros(parameter.numel()) if parameter.grad is None else parameter.grad.numpy().ravel().copy()
