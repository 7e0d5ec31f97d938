"""Random Fourier features (Rahimi and Recht, 2007): interactions of a party's own columns, beside its splines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, OwnRows, RowColumn
from veracausa.features.methods.splines import SplineOptions, Splines
from veracausa.features.table_columns import BLOCK
from veracausa.registry import Options


class RandomFourierOptions(SplineOptions):
    name: str = "fourier"
    waves: int = Field(64, ge=1, le=2048)
    """Cosines of random sums of the splines."""
    bandwidth: float = Field(2.0, gt=0)
    """Rows this many times their usual distance apart are unlike: the larger, the smoother."""


@feature_maps.register("fourier", RandomFourierOptions)
class RandomFourier(FeatureMap):
    """The splines of a table, and cosines of random sums of them: an approximate Gaussian kernel of a party's rows."""

    options: RandomFourierOptions
    tables: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        own = (
            options.model_dump(include=set(SplineOptions.model_fields))
            if isinstance(options, RandomFourierOptions)
            else {}
        )
        self.splines = Splines(SplineOptions(**{**own, "name": "splines"}))
        self.directions = torch.zeros(0, 0, dtype=torch.float64)
        self.shifts = torch.zeros(0, dtype=torch.float64)

    @property
    def notes(self) -> list[str]:
        """What the splines merged or left out."""
        return self.splines.notes

    def fit(self, rows: OwnRows, context: FitContext) -> None:
        self.check(rows)
        self.fit_blocks(lambda: rows.blocks(BLOCK), rows.columns, len(rows), context)

    def fit_blocks(
        self, blocks: Callable[[], Iterator[Tensor]], columns: Sequence[RowColumn], rows: int, context: FitContext
    ) -> None:
        self.splines.fit_blocks(blocks, columns, rows, context)
        width, waves = self.splines.width, self.options.waves
        # Two rows are √2 times the root of all variances apart, on average.
        count, total, squares = 0, np.zeros(width), np.zeros(width)
        for block in blocks():
            values = self.splines.map(block)
            count, total, squares = count + len(values), total + values.sum(0), squares + (values**2).sum(0)
        distance = np.sqrt(2 * max(float((squares / count - (total / count) ** 2).sum()), 1e-12))
        drawn = torch.randn(width, waves, generator=context.rng, dtype=torch.float64)
        self.directions = drawn / (self.options.bandwidth * distance)
        self.shifts = 2 * torch.pi * torch.rand(waves, generator=context.rng, dtype=torch.float64)

    def map(self, rows: Tensor) -> Array:
        values = self.splines.map(rows)
        waves = np.cos(values @ self.directions.numpy() + self.shifts.numpy())
        return np.concatenate([values, waves], axis=1)

    @property
    def width(self) -> int:
        return self.splines.width + len(self.shifts)

    def state(self) -> dict[str, Any]:
        return {"splines": self.splines.state(), "directions": self.directions, "shifts": self.shifts}

    def load_state(self, state: Mapping[str, Any]) -> None:
        try:
            kept, directions, shifts = state["splines"], state["directions"].double(), state["shifts"].double()
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"the saved waves cannot be read ({error}); put an intact copy in their place") from None
        self.splines.load_state(kept)
        if directions.shape != (self.splines.width, len(shifts)) or not directions.isfinite().all():
            raise InputError("the saved waves do not fit their splines; put an intact copy in their place")
        self.directions, self.shifts = directions, shifts
