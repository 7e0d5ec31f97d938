"""Norm-aware UnSplit: the strengths of all edges are known, so weights are only free on spheres of those radii."""

from __future__ import annotations

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import FeatureAttack, Guess, View
from veracausa.attacks.columns.subspace import flat
from veracausa.attacks.methods.columns.unsplit import FeatureUnSplitOptions, alternate


@feature_attacks.register("norm_aware", FeatureUnSplitOptions)
class NormAware(FeatureAttack):
    """A party alone has the strengths: while only the group lasso acts, κ = 1 − η·λ/B tells B. Who is in league with
    the validator of mode M2 has the same numbers. They are of named attributes, and absent edges are among them: so
    the guesses come in order."""

    about = "unsplit with the strengths of all edges known, which the factors give away"
    options: FeatureUnSplitOptions

    def guess(self, view: View) -> Guess | None:
        if view.strengths is None or not view.last.any():
            return None
        radius = view.strengths[..., None]

        def on_spheres(weights: Array) -> Array:
            blocks = weights.reshape(len(weights), radius.shape[1], -1)
            length = np.linalg.norm(blocks, axis=2, keepdims=True)
            return np.asarray((blocks * radius / np.maximum(length, 1e-12)).reshape(weights.shape))

        return Guess(alternate(self.options, view, flat(view.last), on_spheres), ordered=True)
