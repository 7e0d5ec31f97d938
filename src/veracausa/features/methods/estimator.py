"""Any transformer of scikit-learn as a feature map, beside the splines of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, OwnRows
from veracausa.features.estimators import (
    dense,
    kept_estimator,
    make_estimator,
    read_estimator,
    require_skops,
    with_seed,
)
from veracausa.features.methods.splines import SplineOptions, Splines
from veracausa.registry import Options


class EstimatorOptions(Options):
    name: str = "estimator"
    estimator: str = "Nystroem"
    """A transformer of scikit-learn."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """What it is made with."""
    splines: SplineOptions = SplineOptions()
    """The transformer works on the splines of the table, each with mean 0 and spread 1."""
    beside: bool = True
    """Whether the splines stay features as well."""
    min_rows: int = Field(20, ge=1)
    """Features that fewer rows make up, such as small leaves of a tree, are left out."""


@feature_maps.register("estimator", EstimatorOptions)
class EstimatorMap(FeatureMap):
    """A transformer of scikit-learn on a party's splines. From Python, `using` takes any that can be cloned."""

    options: EstimatorOptions
    tables: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.splines = Splines(self.options.splines)
        self.given: Any = None
        self.fitted: Any = None
        self.mean = self.spread = np.zeros(0)
        self.kept: list[int] = []

    @classmethod
    def using(cls, transformer: Any, **settings: Any) -> EstimatorMap:
        """The map of this very transformer, an object with `fit` and `transform`."""
        made = cls(EstimatorOptions(**settings))
        made.given = transformer
        return made

    @property
    def notes(self) -> list[str]:
        """What the splines merged or left out."""
        return self.splines.notes

    def fit(self, rows: OwnRows, context: FitContext) -> None:
        self.check(rows)
        require_skops()
        if self.given is None:
            made = make_estimator(self.options.estimator, "transformer", self.options.settings, context.rng)
        else:
            from sklearn.base import clone

            made = with_seed(clone(self.given), context.rng)
        self.splines.fit(rows, context)
        base = self.splines.map(rows.features.float())
        self.mean, spread = base.mean(0), base.std(0)
        self.spread = np.where(spread > 1e-9, spread, 1.0)
        self.fitted = made.fit((base - self.mean) / self.spread)
        context.progress(0.9)
        found = self._transformed(base)
        moved = (found != np.median(found, axis=0)).sum(0)
        self.kept = np.flatnonzero(moved >= self.options.min_rows).tolist()
        kept_estimator(self.fitted)  # what cannot be kept is refused now, not at the end of the training
        context.progress(1.0)

    def _transformed(self, base: Array) -> Array:
        what = type(self.fitted).__name__
        return dense(self.fitted.transform((base - self.mean) / self.spread), len(base), what)

    def map(self, rows: Tensor) -> Array:
        if self.fitted is None:
            raise InputError("features 'estimator': the map was not fitted yet")
        base = self.splines.map(rows)
        found = self._transformed(base)[:, self.kept] if len(base) else np.zeros((0, len(self.kept)))
        return np.concatenate([base, found], axis=1) if self.options.beside else found

    @property
    def width(self) -> int:
        return self.splines.width * self.options.beside + len(self.kept)

    def state(self) -> dict[str, Any]:
        scale = {"mean": self.mean.tolist(), "spread": self.spread.tolist(), "kept": self.kept}
        return {"splines": self.splines.state(), "fitted": kept_estimator(self.fitted), **scale}

    def load_state(self, state: Mapping[str, Any]) -> None:
        try:
            splines, fitted = state["splines"], state["fitted"]
            mean, spread = (np.array(state[name], np.float64) for name in ("mean", "spread"))
            kept = [int(at) for at in state["kept"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the saved estimator cannot be read ({error}); put an intact copy there") from None
        self.splines.load_state(splines)
        if mean.shape != (self.splines.width,) or spread.shape != mean.shape or not (spread > 0).all():
            raise InputError("the saved estimator does not fit its splines; put an intact copy there")
        self.fitted, self.mean, self.spread, self.kept = read_estimator(fitted), mean, spread, kept
