"""Leaves of random trees beside the splines: how columns of one party act together, without labels."""

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
from veracausa.features.methods.splines import ROWS_WHERE_OPENED, SplineOptions, Splines
from veracausa.features.random_trees import (
    Places,
    RandomTree,
    leaf_places,
    leaf_sums,
    splittable,
    states_of,
    together,
    trees_of,
)
from veracausa.features.table_columns import BLOCK, checked_rows, survey, unnamed
from veracausa.registry import Options

WIDEST = 400
FEWEST = 8
"""With room for fewer components, there are none."""
DAMPING = 1e-3
"""Added to the splines' variances where leaves are regressed on them: some splines add up to others."""
ROUNDS = 8
MOSTLY_SHORTENED = 0.5
"""A direction whose variance falls to this share of itself is made up by few rows."""


class LeafOptions(SplineOptions):
    name: str = "leaves"
    trees: int = Field(64, ge=1, le=1024)
    """Random trees."""
    depth: int = Field(6, ge=1, le=12)
    """Splits from the root of a tree to a leaf, at most."""
    leaf_rows: int = Field(100, ge=1)
    """Rows that a leaf has at least; never below `min_rows`."""
    width: int | None = Field(None, ge=8, le=2000)
    """Components of the leaves. None: 400. There are fewer where rows are few: a feature wants 3 × `min_rows`."""
    weight: float = Field(0.1, gt=0, le=1)
    """Spread of a component beside a spline's: the smaller, the more the head trusts single columns first."""


@feature_maps.register("leaves", LeafOptions)
class Leaves(FeatureMap):
    """The splines of a table, and principal components of what the leaves of random trees say beyond them.

    Splines and components are turned by one random rotation, so that whoever scales every feature to spread 1 keeps
    their proportions. The components of a row that stands out are shortened, so that it has little leverage by them.
    """

    options: LeafOptions
    tables: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        own = options.model_dump(include=set(SplineOptions.model_fields)) if isinstance(options, LeafOptions) else {}
        self.splines = Splines(SplineOptions(**{**own, "name": "splines"}))
        self.trees: list[RandomTree] = []
        self.mean = self.scale = np.zeros(0)
        """Of the splines."""
        self.offset, self.by_splines, self.by_leaf = np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0))
        """Components are the sum of a row's leaves, less what its splines tell of them; each of variance 1."""
        self.spread = np.zeros(0)
        """Of the components, before they are rotated."""
        self.longest = np.inf
        """Squared length of a row's components, at most."""
        self.rotation = np.zeros((0, 0))
        self.short = ""

    @property
    def notes(self) -> list[str]:
        """What the splines merged or left out, and whether there are leaves."""
        return [*self.splines.notes, *([self.short] if self.short else [])]

    def fit(self, rows: OwnRows, context: FitContext) -> None:
        self.check(rows)
        self.fit_blocks(lambda: rows.blocks(BLOCK), rows.columns, len(rows), context)

    def fit_blocks(
        self, blocks: Callable[[], Iterator[Tensor]], columns: Sequence[RowColumn], rows: int, context: FitContext
    ) -> None:
        self.splines.fit_blocks(blocks, columns, rows, context)
        columns = unnamed(columns, self.splines.inputs)
        sample = survey(blocks, columns, self.options.sample, context, rows).sample
        fewest = self.options.min_rows
        room = rows // (ROWS_WHERE_OPENED * fewest) - self.splines.width
        width = min(self.options.width or WIDEST, room)
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=context.rng)))
        usable = splittable(sample, columns, self.splines.groups, fewest)
        self.trees, self.short = [], ""
        if width >= FEWEST and len(usable) > 1:
            for _ in range(self.options.trees):
                least = max(self.options.leaf_rows, fewest)
                self.trees.append(RandomTree.grow(sample, usable, self.options.depth, least, rng))
                context.progress(0.5)
        elif len(usable) > 1:
            self.short = "no leaves beside the splines: there are few rows"
        self._fit_components(sample, max(width, 0), rng, context)
        context.progress(1.0)

    def _fit_components(self, sample: Array, width: int, rng: np.random.Generator, context: FitContext) -> None:
        """Leaves less their regression on the splines, and the leading components of what is left."""
        from scipy.linalg import eigh

        base = self.splines.map(torch.from_numpy(sample))
        self.mean, spread = base.mean(0), base.std(0)
        self.scale = np.where(spread > 1e-9, spread, 1.0)
        base = (base - self.mean) / self.scale
        rows, leaves = len(sample), sum(tree.leaves for tree in self.trees)
        places = leaf_places(self.trees, sample)
        context.progress(0.6)
        share = np.bincount(places.ravel(), minlength=leaves) / rows
        crossed = leaf_sums(places, leaves, base) / rows
        context.progress(0.7)
        squares = base.T @ base / rows
        told = np.linalg.solve(squares + DAMPING * np.eye(len(squares)), crossed.T)
        left = together(places, leaves) / rows - np.outer(share, share)
        left += told.T @ squares @ told - crossed @ told - (crossed @ told).T
        context.progress(0.8)
        width = min(width, max(leaves - 1, 0))
        variances, vectors = np.zeros(0), np.zeros((leaves, 0))
        if width:
            variances, vectors = eigh(left, subset_by_index=[leaves - width, leaves - 1])
            # What rounding leaves of nothing is no component.
            real = variances > 1e-9 * max(float(variances[-1]), 1e-12)
            variances, vectors = variances[real][::-1], vectors[:, real][:, ::-1]
        self.by_leaf = vectors / np.sqrt(variances)
        self.offset, self.by_splines = share @ self.by_leaf, told @ self.by_leaf
        # A row's leverage by the components is about its squared length over the rows: half of what one row may have.
        self.longest = rows / (2 * self.options.min_rows)
        self.spread = self._spread_out(self._unshortened(places, base), np.sqrt(variances), context)
        size = base.shape[1] + len(self.spread)
        self.rotation = np.linalg.qr(rng.standard_normal((size, size)))[0] if len(self.spread) else np.eye(size)

    def _spread_out(self, found: Array, spread: Array, context: FitContext) -> Array:
        """Leave out directions that few rows make up, make the others' variances 1 again; their spreads, weighted.

        Shortened rows make variances smaller, and a direction that only such rows have goes to nothing.
        """
        turn, back = np.eye(len(spread)), np.diag(spread)
        for _ in range(ROUNDS):
            whitened = found @ turn
            short = _shortened(whitened, self.longest)
            variances, vectors = np.linalg.eigh(short.T @ short / max(len(short), 1))
            broad = variances > MOSTLY_SHORTENED
            change = vectors[:, broad] / np.sqrt(variances[broad])
            turn, back = turn @ change, (vectors[:, broad] * np.sqrt(variances[broad])).T @ back
            context.progress(0.9)
        # The components in which the spreads that they had are not mixed with each other.
        squares, vectors = np.linalg.eigh(back @ back.T)
        turn = turn @ vectors[:, ::-1]
        self.by_leaf, self.offset, self.by_splines = self.by_leaf @ turn, self.offset @ turn, self.by_splines @ turn
        kept: Array = np.sqrt(np.maximum(squares[::-1], 0))
        # Together they are as wide as so many features of this weight.
        return self.options.weight * kept / np.sqrt(np.mean(kept**2)) if kept.any() else kept

    def _unshortened(self, places: Places, base: Array) -> Array:
        found = np.zeros((len(base), len(self.offset))) - self.offset - base @ self.by_splines
        for own in places.T:
            found += self.by_leaf[own]
        return found

    def components(self, values: Array, base: Array) -> Array:
        """(n, components) of rows and their standardised splines, of variance about 1 each, long rows shortened."""
        return _shortened(self._unshortened(leaf_places(self.trees, values), base), self.longest)

    def map(self, rows: Tensor) -> Array:
        values = checked_rows(rows, self.splines.inputs)
        base = (self.splines.map(rows) - self.mean) / self.scale
        found: Array = np.concatenate([base, self.components(values, base) * self.spread], axis=1) @ self.rotation
        return found

    @property
    def width(self) -> int:
        return self.rotation.shape[1]

    def state(self) -> dict[str, Any]:
        kept = {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in ARRAYS}
        trees = states_of(self.trees)
        return {"splines": self.splines.state(), "trees": trees, "longest": self.longest, "short": self.short, **kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        try:
            self.splines.load_state(state["splines"])
            trees = trees_of(state, self.splines.inputs)
            found = {name: state[name].double().numpy() for name in ARRAYS}
            longest, short = float(state["longest"]), str(state["short"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the saved leaves cannot be read ({error}); put an intact copy in their place") from None
        base, leaves, parts = self.splines.width, sum(tree.leaves for tree in trees), len(found["offset"])
        shapes: dict[str, tuple[int, ...]] = {"mean": (base,), "scale": (base,), "offset": (parts,), "spread": (parts,)}
        shapes |= {"by_splines": (base, parts), "by_leaf": (leaves, parts), "rotation": (base + parts, base + parts)}
        fits = all(found[name].shape == shape and np.isfinite(found[name]).all() for name, shape in shapes.items())
        if not fits or not (found["scale"] > 0).all() or not longest > 0:
            raise InputError("the saved leaves do not fit their splines and trees; put an intact copy in their place")
        self.trees, self.longest, self.short = trees, longest, short
        for name, values in found.items():
            setattr(self, name, values)


def _shortened(components: Array, longest: float) -> Array:
    """The rows, none of which has a larger squared length."""
    lengths = (components**2).sum(1, keepdims=True)
    found: Array = components * np.sqrt(np.minimum(1, longest / np.maximum(lengths, 1e-30)))
    return found


ARRAYS = ("mean", "scale", "offset", "by_splines", "by_leaf", "spread", "rotation")
"""What a saved map keeps as tensors."""
