"""Scores of a classifier that learns from told labels, cross-fitted: trees at home in place of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, FitLabels, OwnRows
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


class ScoreOptions(Options):
    name: str = "scores"
    estimator: str = "HistGradientBoostingClassifier"
    """A classifier or regressor of scikit-learn."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """What it is made with."""
    folds: int = Field(5, ge=2, le=50)
    """Rows are scored by the model of the other folds; new rows by the mean of all models."""
    beside: bool = True
    """Whether the splines of the table are features as well."""
    splines: SplineOptions = SplineOptions()


@feature_maps.register("scores", ScoreOptions)
class ClassScores(FeatureMap):
    """The chances of the told classes, by models that never saw the row's own label, beside the table's splines.

    Randomised response with matrix T turns chances p of the true classes into pT. The head is linear and has a
    constant, so it can undo any T that has an inverse: the chances of told classes serve as they are.
    """

    options: ScoreOptions
    tables: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.splines = Splines(self.options.splines)
        self.given: Any = None
        self.inputs = 0
        self.outputs = 0
        self.models: list[Any] = []

    @classmethod
    def using(cls, predictor: Any, **settings: Any) -> ClassScores:
        """The map of this very predictor, an object with `fit` and `predict_proba` or `predict`."""
        made = cls(ScoreOptions(**settings))
        made.given = predictor
        return made

    @property
    def notes(self) -> list[str]:
        """What the splines merged or left out."""
        return self.splines.notes

    def fit(self, rows: OwnRows, context: FitContext) -> Array:
        self.check(rows)
        require_skops()
        if context.labels is None:
            raise InputError('features \'scores\' learn from labels; set blind.labels to "private" or "shared"')
        told = _told(context.labels, len(rows), self.options.folds)
        x = rows.features.numpy().astype(np.float64)
        self.inputs, self.outputs = x.shape[1], context.labels.classes
        self.splines.fit(rows, context)
        fold = torch.randperm(len(x), generator=context.rng).numpy() % self.options.folds
        found: Array | None = None
        self.models = []
        for number in range(self.options.folds):
            model = self._made(context).fit(x[fold != number], told[fold != number])
            scores = self._scored(model, x[fold == number])
            found = np.zeros((len(x), scores.shape[1])) if found is None else found
            found[fold == number] = scores
            self.models.append(model)
            context.progress((number + 1) / self.options.folds)
        assert found is not None
        kept_estimator(self.models[0])  # what cannot be kept is refused now, not at the end of the training
        return self._joined(rows.features.float(), found)

    def _made(self, context: FitContext) -> Any:
        if self.given is None:
            return make_estimator(self.options.estimator, "predictor", self.options.settings, context.rng)
        from sklearn.base import clone

        return with_seed(clone(self.given), context.rng)

    def _scored(self, model: Any, x: Array) -> Array:
        """(n, classes − 1) chances, the last class left out as they sum to one; (n, 1) of a regressor."""
        if not hasattr(model, "predict_proba"):
            return dense(model.predict(x), len(x), type(model).__name__)
        chances = np.zeros((len(x), self.outputs))
        chances[:, model.classes_.astype(np.int64)] = model.predict_proba(x)
        return dense(chances[:, 1:], len(x), type(model).__name__)

    def _joined(self, rows: Tensor, scores: Array) -> Array:
        return np.concatenate([scores, self.splines.map(rows)], axis=1) if self.options.beside else scores

    def map(self, rows: Tensor) -> Array:
        if not self.models:
            raise InputError("features 'scores': the map was not fitted yet")
        if rows.ndim != 2 or rows.shape[1] != self.inputs:
            raise InputError(f"features 'scores': rows of {tuple(rows.shape[1:])} values, not of {self.inputs}")
        if not len(rows):
            return np.zeros((0, self.width))
        x = rows.numpy().astype(np.float64)
        return self._joined(rows, np.mean([self._scored(model, x) for model in self.models], axis=0))

    @property
    def width(self) -> int:
        scores = self.outputs - 1 if self.models and hasattr(self.models[0], "predict_proba") else 1
        return scores + self.splines.width * self.options.beside

    def state(self) -> dict[str, Any]:
        models = [kept_estimator(model) for model in self.models]
        return {"inputs": self.inputs, "outputs": self.outputs, "models": models, "splines": self.splines.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        try:
            inputs, outputs, splines = int(state["inputs"]), int(state["outputs"]), state["splines"]
            kept = list(state["models"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the saved scores cannot be read ({error}); put an intact copy there") from None
        models = [read_estimator(model) for model in kept]
        if not models or any(getattr(model, "n_features_in_", inputs) != inputs for model in models):
            raise InputError("the saved scores do not fit the rows; put an intact copy there")
        self.splines.load_state(splines)
        self.inputs, self.outputs, self.models = inputs, outputs, models


def _told(labels: FitLabels, rows: int, folds: int) -> NDArray[np.int64]:
    told = labels.values.numpy().astype(np.int64)
    if len(told) != rows:
        raise InputError(f"features 'scores': {len(told)} labels for {rows} rows")
    if rows < 2 * folds or len(np.unique(told)) < 2:
        raise InputError(f"features 'scores': {rows} rows of {len(np.unique(told))} told classes are too few to learn")
    return told
