"""Norm-aware UnSplit with the strengths of many looks averaged: noise that is drawn anew at each look goes away."""

from __future__ import annotations

from dataclasses import replace

from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import Guess, View
from veracausa.attacks.methods.columns.norm_aware import NormAware
from veracausa.attacks.methods.columns.unsplit import FeatureUnSplitOptions


@feature_attacks.register("norm_averaging", FeatureUnSplitOptions)
class NormAveraging(NormAware):
    """For noise on strengths: hundreds of looks tell what one with a small part of the noise would."""

    about = "norm-aware, with the strengths of all looks in the second half of the refit averaged"

    def guess(self, view: View) -> Guess | None:
        return super().guess(replace(view, strengths=view.mean_strengths))
