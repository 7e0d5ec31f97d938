"""A party and the validator of mode M1: the one has Z = X·W, the other W."""

from __future__ import annotations

from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import ColumnGrant, FeatureAttack, Guess, View
from veracausa.attacks.methods.columns.known_start import followed


@feature_attacks.register("party_and_validator")
class ValidatorCollusion(FeatureAttack):
    """Takes the weights of the validator's first look, and goes on from there as with known first weights.

    In mode M2 the validator has no weights to give.
    """

    needs = ColumnGrant.VALIDATOR
    about = "solves for the columns with weights that the validator of mode M1 was sent"

    def guess(self, view: View) -> Guess | None:
        return None if view.looked is None else followed(view, *view.looked)
