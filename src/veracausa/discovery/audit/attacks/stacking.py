"""Stacking epochs: weights move, so every epoch opens other mixtures of the same columns."""

from __future__ import annotations

from veracausa.discovery.audit.attacks import feature_attacks
from veracausa.discovery.audit.attacks.base import Array, View
from veracausa.discovery.audit.attacks.known_rows import KnownRows
from veracausa.discovery.audit.subspace import beside, directions


@feature_attacks.register("stacking")
class Stacking(KnownRows):
    """Known rows, on all epochs side by side: few numbers an epoch become many over a training."""

    about = "known rows, on a row's features of many epochs side by side"

    def features(self, view: View) -> Array:
        return directions(beside(view.history), view.columns)
