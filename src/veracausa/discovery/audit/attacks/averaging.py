"""Averaging over epochs: the same rows come back, so noise that is drawn anew each time goes away."""

from __future__ import annotations

from veracausa.discovery.audit.attacks import feature_attacks
from veracausa.discovery.audit.attacks.base import Array, View
from veracausa.discovery.audit.attacks.known_rows import KnownRows
from veracausa.discovery.audit.subspace import directions, flat


@feature_attacks.register("averaging")
class Averaging(KnownRows):
    """Known rows, on the mean of all openings since the order was settled, when weights hardly move any more."""

    about = "known rows, on the mean of a row's features over all epochs of the refit"

    def features(self, view: View) -> Array:
        return directions(flat(view.mean), view.columns)
