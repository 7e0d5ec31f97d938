"""Averaging over epochs: the same rows come back, so noise that is drawn anew each time goes away."""

from __future__ import annotations

from veracausa.arrays import Array
from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import View
from veracausa.attacks.columns.subspace import directions, flat
from veracausa.attacks.methods.columns.known_rows import KnownRows


@feature_attacks.register("averaging")
class FeatureAveraging(KnownRows):
    """Known rows, on the mean of all openings since the order was settled, when weights hardly move any more."""

    about = "known rows, on the mean of a row's features over all epochs of the refit"

    def features(self, view: View) -> Array:
        return directions(flat(view.mean), view.columns)
