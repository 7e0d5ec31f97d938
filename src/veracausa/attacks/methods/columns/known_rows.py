"""Known rows: who has a few of the source's rows reads all others, because features are linear in them."""

from __future__ import annotations

from veracausa.arrays import Array
from veracausa.attacks.columns import feature_attacks
from veracausa.attacks.columns.base import ColumnGrant, FeatureAttack, Guess, View
from veracausa.attacks.columns.subspace import directions, flat, regressed


@feature_attacks.register("known_rows")
class KnownRows(FeatureAttack):
    """Fits the columns to the last features on the known rows, and reads the rest."""

    needs = ColumnGrant.KNOWN_ROWS
    about = "knows a few of the source's rows and fits a linear map from the last features to them"

    def guess(self, view: View) -> Guess | None:
        return from_known(view, self.features(view))

    def features(self, view: View) -> Array:
        """What the map starts from."""
        return directions(flat(view.last), view.columns)


def from_known(view: View, features: Array) -> Guess:
    """All rows by the linear map that the known ones give."""
    assert view.known is not None
    at, values = view.known
    return Guess(regressed(features[at], values, features), ordered=True)
