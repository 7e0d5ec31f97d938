"""A party and the validator of mode M1: the one has Z = X·W, the other W."""

from __future__ import annotations

import numpy as np

from veracausa.discovery.audit.attacks import feature_attacks
from veracausa.discovery.audit.attacks.base import FeatureAttack, Grant, Guess, View
from veracausa.discovery.audit.attacks.known_start import solved
from veracausa.discovery.audit.subspace import flat


@feature_attacks.register("party-and-validator")
class ValidatorCollusion(FeatureAttack):
    """Least squares, row by row. In mode M2 the validator has no weights to give."""

    needs = Grant.VALIDATOR
    about = "solves for the columns with the weights that the validator was sent"

    def guess(self, view: View) -> Guess | None:
        if view.weights is None:
            return None
        features = flat(view.last)
        values = np.empty((view.rows, view.columns))
        # Rows of one batch were opened with the same weights.
        _, first, which = np.unique(view.weights[:, 0, :3].round(12), axis=0, return_index=True, return_inverse=True)
        for number, at in enumerate(first):
            rows = which.ravel() == number
            values[rows] = solved(features[rows], view.weights[at])
        return Guess(values, ordered=True)
