"""Decoders that learn from the causes how large the noise is, too.

Where noise is multiplied, or an attribute counts something, its size follows from the causes. A likelihood with one
variance an attribute then takes the change of size for structure, and finds an order that is hardly better than chance.
A second read-out of the same hidden units gives every row a variance of its own. It stays with the target's party: what
parties exchange is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.discovery.decoders import Decoders, Likelihood, _sigmoid

Array = NDArray[np.float64]

LEAST = 0.0025
"""The least variance of a standardised attribute's noise: a row may not be so sure as to outweigh all others."""
FAR = 5.0
"""Beyond so many deviations an error counts by its size and not its square (Huber), or one row would move too much."""
EQUAL = 1e-9
"""Values as close as this are one."""


def rounding_variance(rows: Array) -> Array:
    """(R, d): the variance that rounding alone gives the columns of rows (R, n, d), s²/12 where values lie s apart.

    Between counts there is nothing, and a density could grow without bound on them. Of columns that are not rounded the
    nearest two values say that it is next to nothing.
    """
    gaps = np.diff(np.sort(rows, axis=1), axis=1)
    step = np.where(gaps > EQUAL, gaps, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(np.where(np.isfinite(step), step, 0.0) ** 2 / 12)


class HeteroscedasticDecoders(Decoders):
    """Decoders whose log-variance is a read-out of the last layer, constant before the first step."""

    def __init__(self, replicates: int, targets: int, width: int, *more: Any) -> None:
        super().__init__(replicates, targets, width, *more)
        self.values["readout_variance"] = np.zeros((replicates, targets, width, 1))
        self.least = np.full((replicates, targets, 1, 1), np.log(LEAST))

    def observe(self, rows: Array) -> None:
        self.least = np.log(np.maximum(rounding_variance(rows), LEAST))[..., None, None]

    def losses(self, features: Array, target: Array) -> Array:
        outputs, mean = self._forward(features)
        return self._likelihood(mean, self._log_variance(outputs[-1]), target[..., None])[0]

    def losses_without_causes(self, target: Array) -> Array:
        whole = super().losses_without_causes(target)
        variance = np.maximum(self.least, 0.0)[..., 0, 0]
        return np.asarray(np.where(self.binary, whole, whole * np.exp(-variance) + 0.5 * variance))

    def _log_variance(self, last: Array) -> Array:
        return np.asarray(last @ self.values["readout_variance"] + self.values["log_variance"])

    def _head(self, last: Array, mean: Array, target: Array) -> tuple[Array, dict[str, Array], Array]:
        values = self.values
        losses, by_mean, by_variance = self._likelihood(mean, self._log_variance(last), target)
        turned = last.swapaxes(2, 3)
        gradients = {
            "log_variance": by_variance.sum(2, keepdims=True),
            "readout_variance": turned @ by_variance,
            "offset": by_mean.sum(2, keepdims=True),
            "readout": turned @ by_mean,
        }
        back = by_mean * values["readout"].swapaxes(2, 3) + by_variance * values["readout_variance"].swapaxes(2, 3)
        return losses, gradients, back

    def _likelihood(self, mean: Array, log_variance: Array, target: Array) -> tuple[Array, Array, Array]:
        """The losses, and their gradients by each row's mean and log-variance."""
        rows = mean.shape[2]
        s = np.maximum(log_variance, self.least)
        precision = np.exp(-0.5 * s)
        error = (mean - target) * precision
        near = np.clip(error, -FAR, FAR)
        squares = near * error
        losses = squares - 0.5 * near * near + 0.5 * s
        by_mean, by_variance = near * precision / rows, 0.5 * (1 - squares) / rows
        # At the least variance only what raises it counts.
        by_variance = np.where((log_variance < self.least) & (by_variance > 0), 0.0, by_variance)
        if self.binary.any():
            chosen = self.binary[:, None, None]
            losses = np.where(chosen, np.logaddexp(0, mean) - target * mean, losses)
            by_mean = np.where(chosen, (_sigmoid(mean) - target) / rows, by_mean)
            by_variance = np.where(chosen, 0.0, by_variance)
        return losses.mean(2)[..., 0], by_mean, by_variance


def decoders_for(likelihood: Likelihood) -> type[Decoders]:
    """The decoders that have this likelihood."""
    return HeteroscedasticDecoders if likelihood == "heteroscedastic" else Decoders
