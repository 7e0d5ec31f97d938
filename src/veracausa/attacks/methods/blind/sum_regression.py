"""Read training rows from the sums alone: the regression of the victim's features on the attacker's own columns.

The fitted value of a training row holds a share of the row's own features: its leverage, which is 1/m for one of m rows
that a column singles out. Of the rest it tells what the columns have in common among all people.
"""

from __future__ import annotations

import numpy as np
import torch

from veracausa.attacks import blind_attacks
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows

_RIDGE = 1e-9


@blind_attacks.register("sum_regression", ReaderOptions)
class SumRegression(RowReadingAttack):
    """Fitted features of each training row, by the attacker's own columns and the released sums; then the row."""

    surface = "training rows"
    about = "the active party predicts every training row's features from its own columns and the sums"
    order = 0
    situations = ("sums",)

    def guess(self, view: BlindView) -> BlindReading:
        release, own = view.release, view.own_moments.double().numpy()
        mine = np.r_[release.own, release.labels]
        gram = release.gram[np.ix_(mine, mine)]
        gram = (gram + gram.T) / 2
        level, directions = np.linalg.eigh(gram)
        # Columns that depend on each other (classes and the constant) leave directions that say nothing.
        strong = level > max(_RIDGE * float(level[-1]), 3 * release.noise * np.sqrt(len(mine)))
        inverse = (directions[:, strong] / level[strong]) @ directions[:, strong].T
        weights = inverse @ release.gram[mine][:, release.victim]
        leverage = ((own @ inverse) * own).sum(1)
        self.said = {"mean_leverage": float(leverage.mean()), "largest_leverage": float(leverage.max())}
        # A training row's fitted value holds a share of what the columns do not explain of the row itself, and as much
        # variance of that of other rows as leverages add up to. The auxiliary rows' are made alike.
        fitted = torch.from_numpy(view.own_auxiliary_moments.double().numpy() @ weights)
        rest = view.auxiliary_features.double() - fitted
        share = min(1.0, float(leverage.mean()))
        others = rest[torch.randperm(len(rest), generator=view.rng)]
        learnt = fitted + share * rest + (share * (1 - share)) ** 0.5 * others
        rows, self.reader = read_rows(view, torch.from_numpy(own @ weights), learnt, self.options)
        return BlindReading(rows=rows)
