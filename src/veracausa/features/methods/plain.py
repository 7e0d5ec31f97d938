"""A table's columns as they are: standardised numbers, 0/1 columns of words and of missing values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, OwnRows, RowColumn
from veracausa.features.table_columns import BLOCK, checked_rows, flag_values, merged_flags, survey, unnamed
from veracausa.registry import Options


class PlainOptions(Options):
    name: str = "plain"
    min_rows: int = Field(20, ge=1)
    """No 0/1 column has fewer ones, or fewer zeros: rare words are merged until they have as many."""
    largest: float = Field(8.0, gt=0)
    """Standardised numbers beyond are cut to it: one huge value must not outweigh all others."""


@feature_maps.register("plain", PlainOptions)
class PlainColumns(FeatureMap):
    """Numbers and 0/1 columns without any expansion: a linear model of the table."""

    options: PlainOptions
    tables: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.inputs = 0
        self.numbers: list[int] = []
        self.groups: list[list[int]] = []
        self.notes: list[str] = []
        """What was merged or left out, for the party's own eyes."""

    def fit(self, rows: OwnRows, context: FitContext) -> None:
        self.check(rows)
        self.fit_blocks(lambda: rows.blocks(BLOCK), rows.columns, len(rows), context)

    def fit_blocks(
        self, blocks: Callable[[], Iterator[Tensor]], columns: Sequence[RowColumn], rows: int, context: FitContext
    ) -> None:
        first = next(blocks(), None)
        if first is None:
            raise InputError("features: a party without rows cannot learn a feature map; remove it from the job")
        self.inputs = first.shape[1]
        columns = unnamed(columns, self.inputs)
        found = survey(blocks, columns, BLOCK, context, rows)
        self.groups, self.notes = merged_flags(found, columns, self.options.min_rows)
        self.numbers = []
        for column in columns:
            if column.kind != "number":
                continue
            counts = np.unique(found.sample[:, column.at[0]], return_counts=True)[1]
            if counts.sum() - counts.max() >= self.options.min_rows:
                self.numbers.append(column.at[0])
            else:
                self.notes.append(f"column {column.name!r}: left out, too few rows differ from its commonest value")
        context.progress(1.0)

    def map(self, rows: Tensor) -> Array:
        values = checked_rows(rows, self.inputs)
        numbers = np.clip(values[:, self.numbers], -self.options.largest, self.options.largest)
        return np.concatenate([numbers, flag_values(values, self.groups)], axis=1)

    @property
    def width(self) -> int:
        return len(self.numbers) + len(self.groups)

    def state(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "numbers": self.numbers, "groups": self.groups, "notes": self.notes}

    def load_state(self, state: Mapping[str, Any]) -> None:
        try:
            inputs, numbers = int(state["inputs"]), [int(at) for at in state["numbers"]]
            groups = [[int(at) for at in group] for group in state["groups"]]
            notes = [str(note) for note in state["notes"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the saved columns cannot be read ({error}); put an intact copy in their place") from None
        if any(not 0 <= at < inputs for at in [*numbers, *(at for group in groups for at in group)]):
            raise InputError("the saved columns name a feature that the rows do not have; put an intact copy there")
        self.inputs, self.numbers, self.groups, self.notes = inputs, numbers, groups, notes
