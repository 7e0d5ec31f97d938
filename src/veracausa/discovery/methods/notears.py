"""NO-TEARS (Zheng et al. 2018): linear least squares with an L1 penalty under tr(exp(W∘W)) = d."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veracausa.arrays import Array
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.acyclicity import TimeLimitReached, TraceExponential, augmented_lagrangian
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.methods import method


@method("notears")
@dataclass(kw_only=True, eq=False, repr=False)
class NoTears(CausalDiscovery):
    """Strength = |coefficient|."""

    sparsity: float = 0.1
    rounds: int = 100

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        from scipy.optimize import minimize

        values = data.values - data.values.mean(axis=0)
        d = values.shape[1]
        covariance = values.T @ values / len(values)
        acyclicity = TraceExponential()
        # W = plus − minus, both not negative: the L1 penalty becomes linear and L-BFGS-B can have exact zeros.
        none, free = (0.0, 0.0), (0.0, None)
        bounds = [none if i == j else free for _ in range(2) for i in range(d) for j in range(d)]

        def solve(start: Array, multiplier: float, penalty: float) -> tuple[Array, float]:
            def objective(halves: Array) -> tuple[float, Array]:
                if time_is_up():
                    raise TimeLimitReached
                reached[:] = [halves.copy()]
                weights = _joined(halves, d)
                rest = np.eye(d) - weights
                (h,), (slope,) = acyclicity(weights[None])
                loss = 0.5 * float((rest * (covariance @ rest)).sum()) + self.sparsity * halves.sum()
                gradient = -covariance @ rest + (multiplier + penalty * h) * slope
                both = np.concatenate([gradient.ravel(), -gradient.ravel()]) + self.sparsity
                return loss + multiplier * h + 0.5 * penalty * h * h, both

            reached: list[Array] = [start]
            try:
                found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds).x
            except TimeLimitReached:
                found = reached[0]
            return found, float(acyclicity(_joined(found, d)[None])[0][0])

        halves = augmented_lagrangian(
            solve, np.zeros(2 * d * d), time_is_up=time_is_up, log=self._log, rounds=self.rounds
        )
        return _joined(halves, d)


def _joined(halves: Array, d: int) -> Array:
    return (halves[: d * d] - halves[d * d :]).reshape(d, d)
