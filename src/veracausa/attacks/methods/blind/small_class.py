"""The sums of a small class: divided by its size they are the mean features of a few people."""

from __future__ import annotations

import numpy as np
import torch

from veracausa.attacks import blind_attacks
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows


@blind_attacks.register("small_class", ReaderOptions)
class SmallClass(RowReadingAttack):
    """The mean features of each target's class, read from the moments, and the row behind them."""

    surface = "training rows"
    about = "the active party divides the sums of a small class by its size"
    order = 6
    situations = ("class of 1", "class of 5", "smallest class", "class of 5, epsilon = 1")

    def guess(self, view: BlindView) -> BlindReading:
        release, at = view.release, view.small.long().numpy()
        sums = release.gram[release.victim, release.labels]
        counts = np.maximum(1.0, np.diag(release.gram)[release.labels])
        means = torch.from_numpy(np.ascontiguousarray((sums / counts)[:, at].T))
        size = float(counts[at].mean())
        self.said = {"class_size": size, "noise": release.noise}
        # It learns from means of so many auxiliary rows, each beside one of its rows, with as much noise.
        learnt = view.auxiliary_features.double()
        fellows = [torch.randperm(len(learnt), generator=view.rng) for _ in range(round(size) - 1)]
        seen = learnt.clone()
        for order in fellows:
            seen += learnt[order]
        seen /= 1 + len(fellows)
        noise = release.noise / size * torch.randn(learnt.shape, generator=view.rng, dtype=torch.float64)
        rows, self.reader = read_rows(view, means, seen + noise, self.options)
        return BlindReading(rows=rows)
