"""Two releases of moments of the same rows but one: their difference is the outer product of that row's features."""

from __future__ import annotations

import math

import numpy as np
import torch

from veracausa.arrays import Array
from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView, Release
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows

_TURNS = 30


@blind_attacks.register("two_releases", ReaderOptions)
class TwoReleases(RowReadingAttack):
    """The features of the row that two releases differ by, and the row behind them."""

    surface = "training rows"
    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.SECOND_RELEASE
    about = "the active party trains again after one row was added or removed, and takes the difference of the sums"
    breaks = "a second consent for the same rows"
    order = 5
    situations = ("a row less", "a row less, scaled again", "a row less, epsilon = 1")

    def guess(self, view: BlindView) -> BlindReading:
        known = view.own_moments.double().numpy()
        found, noise = [], 0.0
        for target, own in enumerate(known):
            one, other = view.releases(target)
            noise = max(noise, math.hypot(one.noise, other.noise))
            found.append(difference(one, other, own))
            view.progress(0.5 * (target + 1) / len(known))
        features = torch.from_numpy(np.stack(found))
        learnt = view.auxiliary_features.double()
        if noise:
            # It learns from features as noisy as those it has to read.
            deviation = noise / float(np.sqrt(np.square(known).sum(1).mean()))
            learnt = learnt + deviation * torch.randn(learnt.shape, generator=view.rng, dtype=torch.float64)
        self.said = {"noise": noise}
        rows, self.reader = read_rows(view, features, learnt, self.options)
        return BlindReading(rows=rows)


def difference(one: Release, other: Release, own: Array) -> Array:
    """(width,) the victim's features f of the row: of D = [own, f]ᵀ[own, f] the best f in least squares.

    The cross block is linear in f and the victim's own block is f fᵀ; the two are fitted in turns, from the cross
    block's answer and from the own block's first direction, and the better end is taken. With noise on the sums the
    cross block alone is used: its error is known, so that a reader can learn with it.
    """
    gram = one.gram - other.gram
    mine = np.r_[one.own, one.labels]
    cross, block = gram[one.victim][:, mine] @ own, gram[one.victim, one.victim]
    weight = float(own @ own)
    starts = [cross / weight] if weight else []
    if starts and (one.noise or other.noise):
        return np.asarray(starts[0])
    level, directions = np.linalg.eigh((block + block.T) / 2)
    first = directions[:, -1] * math.sqrt(max(0.0, float(level[-1])))
    starts.append(first if first @ cross >= 0 else -first)
    best, least = starts[0], math.inf
    for start in starts:
        f = start
        for _ in range(_TURNS):
            f = (cross + block @ f) / (weight + float(f @ f) + 1e-12)
        left = (
            np.square(block - np.outer(f, f)).sum() + 2 * np.square(gram[one.victim][:, mine] - np.outer(f, own)).sum()
        )
        if left < least:
            best, least = f, float(left)
    return np.asarray(best)
