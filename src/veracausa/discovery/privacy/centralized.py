"""The private model in floating point, in one place: what a budget costs in accuracy, before parties meet."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto.randomness import Masks
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.mechanism import (
    PrivateDecoders,
    make_mechanism,
)
from veracausa.discovery.privacy.noise import normal
from veracausa.discovery.privacy.options import Privacy


class PrivateCentralizedVFedCD(CentralizedVFedCD):
    """Clipped gradients with the noise of the federation, but no integers. Rows must be clipped before."""

    def __init__(self, settings: Settings, d: int, rng: np.random.Generator, privacy: Privacy, source: Masks) -> None:
        super().__init__(settings, d, rng)
        releases = settings.epochs + settings.refit_epochs
        self.mechanism = make_mechanism(privacy, d, settings.width, releases)
        self.source = source
        kind = (settings.depth, settings.activation, np.zeros(d, dtype=bool), settings.likelihood, rng)
        self.decoders = PrivateDecoders(1, d, settings.width, *kind, mechanism=self.mechanism, source=source)

    def _step(self, x: Array) -> Array:
        losses = super()._step(x)
        moved = self.settings.rate / x.shape[1] * self.mechanism.deviation
        self.weights -= moved * self.structure.allowed[..., None] * normal(self.source, *self.weights.shape)
        return losses
