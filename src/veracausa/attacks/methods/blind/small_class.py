"""The sums of a small class: divided by its size they are the mean features of a few people."""

from __future__ import annotations

import numpy as np
import torch

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows
from veracausa.errors import InputError


@blind_attacks.register("small_class", ReaderOptions)
class SmallClass(RowReadingAttack):
    """The mean features of each target's class, read from the moments, and the row behind them."""

    surface = "training rows"
    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.LABELS
    uses = Grant.LABELLED_AUXILIARY
    about = "the active party divides the sums of a small class by its size"
    order = 6
    situations = ("class of 1", "class of 5", "smallest class", "smallest class, epsilon = 1")

    def guess(self, view: BlindView) -> BlindReading:
        release = view.release
        if view.labels.is_floating_point():
            raise InputError(f"{self.options.name}: a regression has no classes")
        sums = release.gram[release.victim, release.labels]
        counts = np.maximum(1.0, np.diag(release.gram)[release.labels])
        at = view.labels.long().numpy()
        means = torch.from_numpy(np.ascontiguousarray((sums / counts)[:, at].T))
        size = float(counts[at].mean())
        self.said = {"class_size": size, "noise": release.noise}
        learnt = view.auxiliary_features.double()
        # It knows the class's size: a mean of so many rows says of one of them what the mean of its fellows leaves.
        spread = learnt.std(0, correction=0)
        deviation = spread * max(0.0, (size - 1) / size**2) ** 0.5 + release.noise / size
        noise = torch.randn(learnt.shape, generator=view.rng, dtype=torch.float64)
        centre = learnt.mean(0)
        seen = centre + (learnt - centre) / size + deviation * noise
        rows, self.reader = read_rows(view, means, seen, self.options)
        return BlindReading(rows=rows)
