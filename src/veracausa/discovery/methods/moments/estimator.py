"""Discovery from sums as an estimator: functions of columns at home, one release of sums, a search on the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from veracausa.arrays import Array
from veracausa.data.causal.columns import PreparedColumns, prepare
from veracausa.data.causal.frames import as_causal
from veracausa.discovery.base import CausalDiscovery, clock, edge_constraints
from veracausa.discovery.methods import method
from veracausa.discovery.methods.moments.expansion import column_kinds, expand, functions_for
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.search import Known, search_sums
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.moments.sums import sum_table
from veracausa.seeding import derive


@method("moments")
@dataclass(kw_only=True, eq=False, repr=False)
class MomentSearch(CausalDiscovery):
    """Causal discovery from sums over rows: an order search on additive regressions that are read off the sums."""

    fast_settings: ClassVar[Mapping[str, Any]] = {"starts": 1}

    threshold: float = 0.0  # type: ignore[assignment]
    model: Literal["auto", "linear", "lingam", "additive"] = "auto"
    functions: int | None = None
    penalty: float = 1.0
    min_effect: float = 0.0
    starts: int = 4
    nominal: Any = None
    """Columns whose numbers name categories."""

    def settings(self) -> SumsSettings:
        return SumsSettings(
            model=self.model,
            functions=self.functions,
            penalty=self.penalty,
            min_effect=self.min_effect,
            starts=self.starts,
        )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a pandas or polars frame or an array, one row a case; `y` is ignored."""
        settings = self.settings()
        data = as_causal(X)
        values, names = data.values, data.names
        must, never = edge_constraints(self.required, self.forbidden, names)
        nominal = self.nominal or data.nominal
        looked = prepare(values, names, missing="pairwise", collinear="keep", nominal=nominal)
        kinds = column_kinds(values, names, nominal)
        functions = functions_for(len(values), len(names), settings.functions, rows_a_column=5)
        made = expand(values, names, kinds, functions)
        sums = sum_table(made.features.T @ made.features, made.nodes, len(values))
        rng = np.random.default_rng(derive(self.seed, "discovery", "moments"))
        found = search_sums(sums, settings, Known(must, never), rng, clock(self.time_limit, self.timer))
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        self._take(found)
        self.notes_ = (*data.notes, *looked.notes, *made.notes)
        self.warnings_ = looked.warnings
        return self

    def _take(self, found: SumsFound) -> None:
        self.found_ = found
        self.strengths_: Array = found.strengths
        self.adjacency_matrix_ = found.adjacency
        self.undirected_ = found.undirected
        self.threshold_ = 0.0
        self.thresholded_, self.thresholded_is_dag_ = found.adjacency, True
        self.history_: list[dict[str, float]] = []

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        raise NotImplementedError("fit does it all")
