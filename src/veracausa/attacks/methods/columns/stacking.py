"""Stacking epochs: weights move, so every epoch opens other mixtures of the same columns."""

from __future__ import annotations

from veracausa.arrays import Array
from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import View
from veracausa.attacks.columns.subspace import beside, directions
from veracausa.attacks.methods.columns.known_rows import KnownRows


@feature_attacks.register("stacking")
class Stacking(KnownRows):
    """Known rows, on all epochs side by side: few numbers an epoch become many over a training."""

    about = "known rows, on a row's features of many epochs side by side"

    def features(self, view: View) -> Array:
        return directions(beside(view.history), view.columns)
