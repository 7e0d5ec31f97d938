"""The model that VFedCD is not: every party encodes its own columns, non-linearly, before anything is put together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings


class LocalEncoders(CentralizedVFedCD):
    """Each party has hidden units of its own for every target, which see its own columns only (the paper's dEsD).

    With `depth = 0` their outputs are only added up; with more, decoders mix them.
    """

    def __init__(self, settings: Settings, owners: NDArray[np.int_], rng: np.random.Generator) -> None:
        replicates, d = owners.shape
        parties = int(owners.max()) + 1
        wide = settings.model_copy(update={"width": parties * settings.width})
        super().__init__(wide, d, rng, replicates=replicates)
        of_unit = np.repeat(np.arange(parties), settings.width)
        self.sees = (owners[:, :, None, None] == of_unit).astype(float)
        """(R, d, 1, units): whether a unit sees a source."""
        # A party's units are a part of all: without this they would begin smaller than those of a shared encoder.
        self.weights *= self.sees * np.sqrt(parties)

    def _step(self, x: Array) -> Array:
        losses = super()._step(x)
        self.weights *= self.sees
        return losses
