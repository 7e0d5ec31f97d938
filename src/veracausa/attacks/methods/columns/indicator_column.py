"""A malicious party sums up an indicator of one row: its sums with a partner's features are that row's values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from veracausa.arrays import Array
from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView
from veracausa.errors import InputError
from veracausa.registry import Options


class IndicatorColumnOptions(Options):
    amplitude: float = Field(1.0, gt=0)
    """The value of the features that it makes up: noise of differential privacy weighs so much less."""


@column_attacks.register("indicator_column", IndicatorColumnOptions)
class IndicatorColumn(ColumnAttack):
    """Indicators of single rows or, where the check at home refuses these, wide features that differ by one row."""

    needs = Grant.VALIDATOR | Grant.TAMPER
    about = "a malicious party in league with the validator sums up features that single out rows"
    breaks = "a party that makes up features"
    opened = "sums"
    order, drawn = 26, 5
    situations = ("checked at home", "unchecked")
    options: IndicatorColumnOptions

    def __init__(self, options: IndicatorColumnOptions) -> None:
        super().__init__(options)
        self.said: dict[str, float] = {}

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        if not hasattr(view, "cross_sums"):
            return None
        amplitude = self.options.amplitude
        alone = np.zeros((view.rows, len(view.targets)))
        alone[view.targets, np.arange(len(view.targets))] = amplitude
        refused = False
        try:
            found = view.cross_sums(alone)
        except InputError:
            refused = True
            found = self._by_pairs(view, alone)
        noise = view.sums.noise * (2**0.5 if refused else 1.0) / amplitude
        self.said = {"indicator_refused": float(refused), "noise": noise}
        return ColumnGuess(found[:, view.numbers] / amplitude / (1 + noise**2), ordered=True, at=view.targets)

    def _by_pairs(self, view: ColumnView, alone: Array) -> Array:
        """A crowd of rows that are no targets, and the crowd with each target: all features tell rows enough."""
        others = np.setdiff1d(np.arange(view.rows), view.targets)
        crowd = np.zeros((view.rows, 1))
        crowd[others[: max(1, view.smallest)]] = self.options.amplitude
        found = view.cross_sums(np.concatenate([crowd, alone + crowd], axis=1))
        return found[1:] - found[:1]

    def notes(self) -> Mapping[str, float]:
        return self.said
