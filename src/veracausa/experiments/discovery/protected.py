"""What counter-measures cost in accuracy: the model in one place, with what parties would do to opened features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.countermeasures import mixing


class ProtectedModel(CentralizedVFedCD):
    """`owners` (R, d) number the party of each attribute: weights between parties pass the bottleneck, and every target
    has noise on its features, because each has a foreign source."""

    def __init__(
        self,
        settings: Settings,
        owners: NDArray[np.int_],
        rng: np.random.Generator,
        binary: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(settings, owners.shape[1], rng, binary=binary, replicates=len(owners))
        self.across = owners[:, :, None] != owners[:, None, :]
        self.noise = settings.row_noise or 0.0
        self.mixed: Array | None = None
        if settings.bottleneck is not None:
            rows = mixing(settings.bottleneck, settings.width)
            self.mixed = rows.T @ rows
        self._narrow()

    def features(self, x: Array, weights: Array | None = None) -> Array:
        """(R, d, n, h), as the parties would open and spread them."""
        opened = super().features(x, weights)
        if not self.noise:
            return opened
        drawn = self.noise * self.rng.standard_normal(opened.shape)
        return opened + (drawn if self.mixed is None else drawn @ self.mixed)

    def _step(self, x: Array) -> Array:
        losses = super()._step(x)
        self._narrow()
        return losses

    def _narrow(self) -> None:
        """A step on V of W = V·M is a step on W that stays in the rows of M: the same as to project it."""
        if self.mixed is not None:
            self.weights = np.where(self.across[..., None], self.weights @ self.mixed, self.weights)
