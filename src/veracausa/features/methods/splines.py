"""Splines of every number and 0/1 columns of every word: the map for tables. It needs no labels and no training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, OwnRows, RowColumn
from veracausa.features.table_columns import (
    BLOCK,
    Survey,
    checked_rows,
    flag_values,
    merged_flags,
    number_places,
    survey,
    unnamed,
)
from veracausa.registry import Options

DEGREE = 3
LEVELS = 128
"""Steps of the quantile transform."""
ROWS_WHERE_OPENED = 3
"""Times `min_rows` rows a feature, at a party that opens sums: with fewer, features together single out rows."""
ROWS_BEYOND_DOUBT = 8
"""Times `min_rows` rows a feature: with more, a row near the ends of all columns at once is not singled out either."""


class SplineOptions(Options):
    name: str = "splines"
    functions: int = Field(8, ge=4, le=64)
    """Cubic B-splines a number at most; one that has no more different values gets a 0/1 column for each.

    There are fewer where rows are few: a feature wants `min_rows` rows, three times as many at the active party.
    """
    min_rows: int = Field(20, ge=1)
    """No function is other than zero in fewer rows. Rare words and levels are merged until they have as many."""
    sample: int = Field(65_536, ge=1024)
    """Quantiles are taken from so many rows, drawn at random, where there are more."""


@feature_maps.register("splines", SplineOptions)
class Splines(FeatureMap):
    """Cubic B-splines of each number after its quantile transform, 0/1 columns of words and of missing values.

    A value that very many rows share, such as a zero, gets a 0/1 column of its own, and the splines are of the others.
    Beyond the training rows' range a spline stays at its end value. All functions are between 0 and 1.
    """

    options: SplineOptions
    tables: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.inputs = 0
        self.numbers: list[dict[str, Any]] = []
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
        found = survey(blocks, columns, self.options.sample, context, rows)
        self.groups, self.notes = merged_flags(found, columns, self.options.min_rows)
        numbers = list(number_places(columns))
        functions = self._functions(rows // ROWS_WHERE_OPENED if context.opens else rows, len(numbers))
        said = self._expand(numbers, found, functions)
        fewer = False
        while functions > 1 and self._singles_out(blocks, rows, context, fewer):
            fewer = True
            functions = functions - 1 if functions > DEGREE + 1 else 1
            said = self._expand(numbers, found, functions)
        if functions < self.options.functions and numbers:
            kept = f"{functions} functions a number" if functions > DEGREE else "one function a number"
            self.notes.append(f"{kept} in place of {self.options.functions}: there are few rows")
        self.notes += said
        context.progress(1.0)

    def _functions(self, rows: int, numbers: int) -> int:
        """How many functions each of so many numbers gets at most, with a feature for every `min_rows` rows."""
        room = rows // self.options.min_rows - len(self.groups)
        return max(1, min(self.options.functions, room // max(1, numbers)))

    def _expand(self, numbers: Sequence[tuple[str, int, int | None]], found: Survey, functions: int) -> list[str]:
        """Plan so many functions for each number; what was left out, in words."""
        usable = {at for group in self.groups for at in group}
        self.numbers, said = [], []
        for name, at, marked in numbers:
            # Splines sum to one where a value is there: zeros where it is missing would bring a rare flag back.
            missing = marked if marked in usable else None
            plan = self._plan(name, at, missing, found, functions)
            if plan is None:
                said.append(f"column {name!r}: left out, too few rows differ from its commonest value")
            else:
                self.numbers.append(plan)
        return said

    def _singles_out(
        self, blocks: Callable[[], Iterator[Tensor]], rows: int, context: FitContext, with_labels: bool
    ) -> bool:
        """Whether rows near the ends of several columns at once would be told; of many rows that need not be asked."""
        beyond_doubt = rows > ROWS_BEYOND_DOUBT * self.options.min_rows * self.width
        if context.singles_out is None or not self.width or beyond_doubt:
            return False
        return context.singles_out(lambda: (self.map(block) for block in blocks()), with_labels)

    def _plan(self, name: str, at: int, missing: int | None, found: Survey, most: int) -> dict[str, Any] | None:
        """How one number is expanded; None: it cannot be, without a function of too few rows."""
        values = found.sample[:, at]
        if missing is not None:
            values = values[found.sample[:, missing] == 0]
        # Counted in the sample: what has rows enough there has them for certain.
        fewest = self.options.min_rows
        plan: dict[str, Any] = {"name": name, "at": at, "missing": missing, "edges": [], "atoms": [], "grid": []}
        levels, counts = np.unique(values, return_counts=True)
        if len(levels) <= max(2, most):
            plan["edges"] = _merged_edges(levels, counts, fewest)
            return plan if plan["edges"] else None
        others = len(found.sample) - len(values)
        frequent = counts >= max(fewest, len(values) / most)
        rest_rows = int(counts[~frequent].sum())
        if rest_rows < fewest:
            plan["edges"] = _merged_edges(levels, counts, fewest)
            return plan if plan["edges"] else None
        # An atom's complement must have rows enough as well: it is opened by the constant less the atom.
        atoms = [
            float(v) for v, c in zip(levels[frequent], counts[frequent], strict=True) if rest_rows + others >= fewest
        ]
        rest = values[~np.isin(values, levels[frequent])]
        functions = int(min(most, len(np.unique(rest)), rest_rows // fewest))
        plan["atoms"] = atoms
        plan["grid"] = [float(value) for value in np.quantile(rest, np.linspace(0, 1, LEVELS + 1))]
        plan["functions"] = functions if functions > DEGREE else 1
        return plan

    def map(self, rows: Tensor) -> Array:
        values = checked_rows(rows, self.inputs)
        blocks = [_expanded(plan, values) for plan in self.numbers]
        return np.concatenate([np.zeros((len(values), 0)), *blocks, flag_values(values, self.groups)], axis=1)

    @property
    def width(self) -> int:
        return sum(map(_width, self.numbers)) + len(self.groups)

    def state(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "numbers": self.numbers, "groups": self.groups, "notes": self.notes}

    def load_state(self, state: Mapping[str, Any]) -> None:
        try:
            inputs, notes = int(state["inputs"]), [str(note) for note in state["notes"]]
            groups = [[int(at) for at in group] for group in state["groups"]]
            numbers = [_read_plan(plan) for plan in state["numbers"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the saved splines cannot be read ({error}); put an intact copy in their place") from None
        places = [at for group in groups for at in group] + [plan["at"] for plan in numbers]
        places += [plan["missing"] for plan in numbers if plan["missing"] is not None]
        if any(not 0 <= at < inputs for at in places):
            raise InputError("the saved splines name a feature that the rows do not have; put an intact copy there")
        self.inputs, self.numbers, self.groups, self.notes = inputs, numbers, groups, notes


def _read_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {"name": str(plan["name"]), "at": int(plan["at"])}
    read["missing"] = None if plan["missing"] is None else int(plan["missing"])
    for name in ("edges", "atoms", "grid"):
        read[name] = [float(value) for value in plan[name]]
        if not np.isfinite(read[name]).all():
            raise ValueError(f"{name} is not finite")
    if read["grid"]:
        read["functions"] = int(plan["functions"])
        if read["functions"] != 1 and not DEGREE < read["functions"] <= 64:
            raise ValueError("functions is out of range")
    return read


def _width(plan: Mapping[str, Any]) -> int:
    return len(plan["edges"]) or len(plan["atoms"]) + plan["functions"]


def _expanded(plan: Mapping[str, Any], rows: Array) -> Array:
    values = rows[:, plan["at"]]
    if plan["edges"]:
        # One column for each level above the lowest: together with the constant they say all.
        level = np.searchsorted(plan["edges"], values, side="right")
        block = (level[:, None] == np.arange(1, len(plan["edges"]) + 1)).astype(np.float64)
    else:
        # Rows come as float32, and so did the atoms.
        atoms = values[:, None] == np.asarray(plan["atoms"])[None, :]
        place = uniform_place(values, np.asarray(plan["grid"]))
        curves = b_splines(place, plan["functions"]) if plan["functions"] > 1 else place[:, None]
        block = np.concatenate([atoms.astype(np.float64), curves * ~atoms.any(1, keepdims=True)], axis=1)
    if plan["missing"] is not None:
        block = block * (rows[:, plan["missing"]] == 0)[:, None]
    return np.asarray(block, np.float64)


def _merged_edges(levels: Array, counts: NDArray[np.int64], fewest: int) -> list[float]:
    """Edges between neighbouring values, so that each group has enough rows; none where one group is all."""
    edges: list[float] = []
    below, left = 0.0, float(counts.sum())
    for number in range(len(levels) - 1):
        below, left = below + counts[number], left - counts[number]
        if below >= fewest and left >= fewest:
            edges.append(float((levels[number] + levels[number + 1]) / 2))
            below = 0.0
    return edges


def uniform_place(values: Array, grid: Array) -> Array:
    """Where a value stands among the quantiles, in [0, 1]; values that fill several quantiles stand in their middle."""
    level = np.linspace(0, 1, len(grid))
    knots, inverse = np.unique(grid, return_inverse=True)
    middle = np.bincount(inverse, weights=level) / np.bincount(inverse)
    place: Array = np.interp(values, knots, middle) if len(knots) > 1 else np.full(len(values), 0.5)
    return place


def b_splines(place: Array, functions: int) -> Array:
    """(n, functions) cubic B-splines with equally spaced knots in [0, 1]; they sum to one."""
    from scipy.interpolate import BSpline

    if not len(place):  # which scipy refuses
        return np.zeros((0, functions))
    inner = np.linspace(0, 1, functions - DEGREE + 1)
    knots = np.concatenate([np.zeros(DEGREE), inner, np.ones(DEGREE)])
    design: Array = BSpline.design_matrix(np.clip(place, 0, 1), knots, DEGREE).toarray()
    return design
