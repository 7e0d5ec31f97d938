"""Surrogates of table rows: each column takes the value of one of the row's nearest neighbours. Ours, not the paper's.

A row's neighbours agree with it in what most columns say together, which is what a model should go by; where they
differ is the chance of the single case. The paper treats images alone; that this suits every table is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import Groups, Surrogate, SurrogateOptions, bank_of
from veracausa.defenses.protocols import no_progress
from veracausa.errors import InputError
from veracausa.events import ProgressCallback

BANK = 4096


class NeighboursOptions(SurrogateOptions):
    """Resampling among neighbours."""

    neighbours: int = Field(5, ge=1)
    """How many of the nearest training rows a value is drawn from."""


@surrogates.register("neighbours", NeighboursOptions)
class Neighbours(Surrogate):
    """Draws each column anew among the row's nearest training rows; a one-hot encoded column is drawn as one."""

    suits = "tables"
    options: NeighboursOptions
    bank: Tensor
    columns: Tensor

    def fit(
        self, rows: Tensor, rng: torch.Generator, progress: ProgressCallback = no_progress, groups: Groups | None = None
    ) -> None:
        self.check(rows.shape[1:])
        if len(rows) < 2:
            raise InputError("surrogate 'neighbours' needs two training rows or more, and there is one; use 'none'")
        self.bank = bank_of(rows, BANK, rng)
        features = torch.arange(rows.shape[1]) if groups is None else torch.tensor(list(groups))
        if len(features) != rows.shape[1]:
            raise ValueError(f"{len(features)} groups for {rows.shape[1]} features")
        self.columns = torch.unique(features, return_inverse=True)[1]

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        self.bank = self.bank.to(x)
        nearest = nearest_others(x, self.bank, self.options.neighbours)
        columns = int(self.columns.max()) + 1 if len(self.columns) else 0
        choice = torch.randint(nearest.shape[1], (len(x), columns), generator=rng)[:, self.columns].to(x.device)
        return nearest.gather(1, choice[:, None])[:, 0]

    def state(self) -> dict[str, Any]:
        return {"bank": self.bank, "columns": self.columns}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.bank, self.columns = state["bank"], state["columns"]


def nearest_others(x: Tensor, bank: Tensor, count: int) -> Tensor:
    """(n, k, columns) the nearest rows of the bank, k at most `count`; a row is not its own neighbour."""
    count = min(count, len(bank) - 1)
    found = bank[torch.cdist(x, bank).topk(count + 1, dim=1, largest=False).indices]
    # One equal row is the row itself; more of them, its twins, are neighbours. Without one, the last is too many.
    equal = (found == x[:, None]).all(2)
    left_out = torch.where(equal.any(1), equal.to(torch.int8).argmax(1), count)
    places = torch.arange(count, device=x.device)[None]
    places = places + (places >= left_out[:, None])
    return found.gather(1, places[:, :, None].expand(-1, -1, x.shape[1]))
