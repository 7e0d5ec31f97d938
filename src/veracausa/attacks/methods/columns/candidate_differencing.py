"""Candidate differencing: graphs that differ by one edge open that edge's contribution, a copy of its cause."""

from __future__ import annotations

import numpy as np

from veracausa.attacks import column_attacks
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView


@column_attacks.register("candidate_differencing")
class CandidateDifferencing(ColumnAttack):
    """On the rows kept apart, which the rule `held_out_graphs` opens once a candidate graph, with the same weights.

    Features under a graph are the sum of its edges' contributions; an edge whose contribution follows from these sums
    is a copy of its cause, and the party is told the graphs. Where rows are opened once there is nothing to subtract:
    what is left is an attribute with a single foreign cause in the order that was found.
    """

    about = "subtracts the features of the held-out rows under one candidate graph from those under another"
    order, drawn = 6, 1

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "candidates") or not len(view.candidates.graphs):
            return None
        graphs, features = view.candidates.graphs.astype(np.float64), view.candidates.features
        count, rows, targets, _ = features.shape
        values = np.full((rows, view.columns), np.nan)
        loudest = np.zeros(view.columns)
        for target in range(targets):
            sums = features[:, :, target].reshape(count, -1)
            inverse = np.linalg.pinv(graphs[:, :, target])
            # Row i of the projection is a unit vector just where contribution i is determined.
            determined = np.abs(np.eye(view.columns) - inverse @ graphs[:, :, target]).max(1) < 1e-6
            parts = (inverse @ sums).reshape(view.columns, rows, -1)
            for cause in np.flatnonzero(determined & graphs[:, :, target].any(0)):
                left, singular, _ = np.linalg.svd(parts[cause] - parts[cause].mean(0), full_matrices=False)
                if singular[0] > loudest[cause]:
                    loudest[cause], values[:, cause] = singular[0], left[:, 0]
        return ColumnGuess(values, ordered=True, rows="held out")
