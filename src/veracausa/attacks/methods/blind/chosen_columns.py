"""A malicious active party puts an indicator of one row among its own columns: its cross moments are that row."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows
from veracausa.errors import InputError


class ChosenColumnsOptions(ReaderOptions):
    amplitude: float = Field(1.0, gt=0)
    """The value of the chosen columns: noise of differential privacy weighs so much less."""


@blind_attacks.register("chosen_columns", ChosenColumnsOptions)
class ChosenColumns(RowReadingAttack):
    """Indicator columns, or, where these are refused, pairs of wide columns that differ by one row."""

    surface = "training rows"
    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.TAMPER
    about = "a malicious active party adds columns that single out rows"
    breaks = "an active party that makes up columns"
    order = 7
    situations = ("columns unchecked", "columns checked", "columns, epsilon = 1", "loud columns, epsilon = 1")
    options: ChosenColumnsOptions

    def guess(self, view: BlindView) -> BlindReading:
        amplitude = self.options.amplitude
        alone = torch.zeros(view.training_rows, len(view.positions), dtype=torch.float64)
        alone[view.positions, torch.arange(len(view.positions))] = amplitude
        refused = False
        try:
            features = view.cross_moments(alone) / amplitude
        except InputError:
            refused = True
            features = self._by_pairs(view, alone)
        noise = view.release.noise * (2**0.5 if refused else 1) / amplitude if hasattr(view, "release") else 0.0
        self.said = {"indicator_refused": float(refused), "noise": noise}
        learnt = view.auxiliary_features.double()
        if noise:
            learnt = learnt + noise * torch.randn(learnt.shape, generator=view.rng, dtype=torch.float64)
        rows, self.reader = read_rows(view, features, learnt, self.options)
        return BlindReading(rows=rows)

    def _by_pairs(self, view: BlindView, alone: Tensor) -> Tensor:
        """A crowd of rows that are no targets, and the crowd with each target: all columns have support enough."""
        others = torch.ones(view.training_rows, dtype=torch.bool)
        others[view.positions] = False
        crowd = torch.zeros(view.training_rows, 1, dtype=torch.float64)
        crowd[others.nonzero().flatten()[: max(1, view.smallest)], 0] = self.options.amplitude
        found = view.cross_moments(torch.cat([crowd, alone + crowd], 1)) / self.options.amplitude
        return found[1:] - found[:1]
