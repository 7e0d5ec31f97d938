"""SCARF (Bahri et al., 2022): a network learns to know a row again after most of its columns were drawn anew."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from veracausa.features import feature_maps
from veracausa.features.base import FitContext, OwnRows, RowColumn
from veracausa.features.methods.simclr import nt_xent
from veracausa.features.network_training import FitProgress
from veracausa.features.self_supervised import SelfSupervised, SelfSupervisedOptions
from veracausa.features.table_columns import unnamed


class ScarfOptions(SelfSupervisedOptions):
    name: str = "scarf"
    epochs: int = Field(30, ge=1)
    projector: tuple[int, ...] = Field((128, 64), min_length=1)
    corruption: float = Field(0.6, gt=0, lt=1)
    """The share of columns that is drawn anew, each from another row of the party."""
    temperature: float = Field(1.0, gt=0)


@feature_maps.register("scarf", ScarfOptions)
class Scarf(SelfSupervised):
    """Features of a table from the job's `[model]`, which learns to match a row with itself in disguise."""

    options: ScarfOptions
    pictures: ClassVar[bool] = False
    tables: ClassVar[bool] = True
    labelled: ClassVar[bool] = False
    """Fine-tuning draws views of pictures; with labels, `scores` is the map for tables."""

    def prepare(self, rows: OwnRows, context: FitContext, fit: FitProgress) -> None:
        self._rows = rows.features.to(context.device, torch.float32)
        columns = unnamed(rows.columns, rows.features.shape[1])
        self._column_of = column_numbers(columns, rows.features.shape[1]).to(context.device)

    def two_views(self, x: Tensor, positions: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        count = int(self._column_of.max()) + 1
        drawn = torch.rand(len(x), count, generator=rng, device=x.device) < self.options.corruption
        # Each column comes from a row of its own: the table's marginal distribution, not another row.
        others = torch.randint(len(self._rows), (len(x), count), generator=rng, device=x.device)
        places = torch.arange(x.shape[1], device=x.device)
        replaced = self._rows[others[:, self._column_of], places]
        return x, torch.where(drawn[:, self._column_of], replaced, x)

    def loss(self, first: Tensor, second: Tensor, rng: torch.Generator) -> Tensor:
        return nt_xent(first, second, self.options.temperature)


def column_numbers(columns: tuple[RowColumn, ...], width: int) -> Tensor:
    """(width,): to which column of the table each feature belongs; a word's 0/1 features go together."""
    names = list(dict.fromkeys(column.name for column in columns))
    numbers = torch.zeros(width, dtype=torch.int64)
    for column in columns:
        numbers[list(column.at)] = names.index(column.name)
    return numbers
