"""Known rows: who has a few of the source's rows reads all others, because features are linear in them.

Three attacks differ in the features that the linear map starts from: the last ones, their mean, or all side by side.
"""

from __future__ import annotations

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView, beside, directions, flat, regressed


class _Regression(ColumnAttack):
    needs = Grant.KNOWN_ROWS
    on_sums = True

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        """All rows by the linear map that the known ones give."""
        at, values = view.known
        features = self.features(view)
        return ColumnGuess(regressed(features[at], values, features), ordered=True)

    def features(self, view: ColumnView) -> Array:
        """What the map starts from."""
        raise NotImplementedError


@column_attacks.register("known_rows")
class KnownRows(_Regression):
    """Fits the columns to the last features on the known rows, and reads the rest."""

    about = "knows a few of the source's rows and fits a linear map from the last features to them"
    order, drawn, colluding = 8, 5, True

    def features(self, view: ColumnView) -> Array:
        return directions(flat(view.last), view.columns)


@column_attacks.register("averaging")
class FeatureAveraging(_Regression):
    """Known rows, on the mean of all openings since the order was settled: noise that is drawn anew goes away."""

    about = "known rows, on the mean of a row's features over all epochs of the refit"
    order = 9

    def features(self, view: ColumnView) -> Array:
        return directions(flat(view.mean), view.columns)


@column_attacks.register("stacking")
class Stacking(_Regression):
    """Known rows, on all epochs side by side: few numbers an epoch become many over a training."""

    about = "known rows, on a row's features of many epochs side by side"
    order, drawn = 10, 6

    def features(self, view: ColumnView) -> Array:
        return directions(beside(view.history), view.columns)
