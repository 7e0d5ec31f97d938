"""The default: a graph from sums, and networks beside it where the table calls for them; held-out rows choose."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from veracausa.data.causal import CausalData
from veracausa.data.causal.columns import without_missing
from veracausa.data.causal.frames import as_causal
from veracausa.discovery.methods import method
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.moments.expansion import column_kinds, expand, functions_for
from veracausa.discovery.methods.moments.held_out import SHARE, RowFit, held_out_rows
from veracausa.discovery.methods.moments.known import known_of
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.errors import InputError
from veracausa.events import Observer, event_of

TOGETHER = 5.0
"""Nats a column that products of two causes gain: beyond, networks may see more than curves do."""
UNEVEN = 0.5
"""The share of effects whose noise depends on their causes, beyond which networks with uneven noise are tried."""
MOST_COLUMNS, MOST_ROWS = 40, 5000
"""Larger tables are not given to networks unasked: they would take many minutes."""
SECONDS = 3e-5
"""Of networks, for a row, a column and an epoch of a search, about."""
EPOCHS = 1300


@method("auto")
@dataclass(kw_only=True, eq=False, repr=False)
class AutoDiscovery(MomentSearch):
    """`moments` first. `vfedcd` in addition where it is asked for, or where rows in one place call for it.

    It also takes every setting of `moments`.

    Parameters
    ----------
    networks
        Whether `vfedcd` runs, too. None: in one place, where causes act together or noise depends on them. Between
        parties only if it is asked for, because partners can solve for columns then.
    """

    networks: bool | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        parties: Mapping[str, Sequence[Any]] | None = None,
        observer: Observer | None = None,
        out: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn from a pandas or polars frame or an array; `parties` maps each party to its columns."""
        tell = observer or (lambda event: None)
        data = as_causal(X, {str(column) for columns in (parties or {}).values() for column in columns})
        if self.networks and self.nominal_of(data):
            first = self.nominal_of(data)[0]
            raise InputError(f"networks: column {first!r} holds categories, which they take for numbers; leave it out")
        started = time.monotonic()
        folder = None if out is None else Path(out)
        super().fit(data, parties=parties, observer=observer, out=folder, resume=resume)
        seconds = time.monotonic() - started
        self.compared_: list[dict[str, Any]] = [self._candidate("moments", None, seconds, self)]
        """What was compared, and which of them was kept."""
        self.compared_[0]["kept"] = True
        reason = self._reason(data) if self.networks is None else "it was asked for" if self.networks else ""
        if reason:
            self._with_networks(data, parties, reason, tell, None if folder is None else folder / "networks", resume)
        return self

    def nominal_of(self, data: CausalData) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*data.nominal, *map(str, self.nominal or ())]))

    def _reason(self, data: CausalData) -> str:
        """Why networks are tried unasked; empty: they are not."""
        rows, columns = data.values.shape
        if self.engine_ == "federated" or self.nominal_of(data) or self.tiers is not None:
            return ""
        if columns > MOST_COLUMNS or rows > MOST_ROWS or self.model_ != "additive":
            return ""
        self._uneven = False
        effects = int(self.adjacency_matrix_.any(axis=0).sum())
        if effects and len(self._row_fit(data).uneven()) >= UNEVEN * effects:
            self._uneven = True
            return "noise depends on the causes"
        if self.found_.scores.get("products", 0.0) > TOGETHER * columns:
            return "causes act together"
        return ""

    def _row_fit(self, data: CausalData) -> RowFit:
        """The graph with regressions on rows."""
        filled, _ = without_missing(data.values, data.names, "median")
        kept = [at for at, column in enumerate(filled.T) if column.std() > 0]
        names = [data.names[at] for at in kept]
        kinds = column_kinds(filled[:, kept], names)
        made = expand(
            filled[:, kept], names, kinds, functions_for(len(filled), len(kept), self.functions, 5), products=True
        )
        return RowFit(made, filled[:, kept], self.adjacency_matrix_[np.ix_(kept, kept)])

    def _with_networks(
        self,
        data: CausalData,
        parties: Mapping[str, Sequence[Any]] | None,
        reason: str,
        tell: Observer,
        folder: Path | None,
        resume: bool,
    ) -> None:
        """Fit `vfedcd` on the same rows, and keep what makes held-out rows likelier."""
        rows, columns = data.values.shape
        between = self.engine_ == "federated"
        likelihood = "auto" if getattr(self, "_uneven", False) else "gaussian"
        epochs = EPOCHS * (2 if likelihood == "auto" else 1)
        announced = {
            "what": f"networks, because {reason}",
            "seconds": SECONDS * rows * columns * epochs * (40 if between else 1),
        }
        tell(event_of("announced", announced))
        known = known_of(self.required, self.forbidden, self.tiers, data.names)
        forbidden = ~known.may & ~np.eye(columns, dtype=bool)
        protection = {"encryption": self.settings().encryption} if between else {}
        fit = VFedCD(
            likelihood=likelihood,
            required=self.required,
            forbidden=forbidden if forbidden.any() else None,
            seed=self.seed,
            engine="federated" if between else "floating",
            link=self.link,
            protection=protection,
            time_limit=None if between else self.time_limit,
            timer=self.timer,
        )
        started = time.monotonic()
        fit.fit(
            data, parties=parties, observer=tell, out=folder, resume=resume and folder is not None and folder.exists()
        )
        seconds = time.monotonic() - started
        if between:
            mine = float("nan")
            why = "moments was kept: between parties no held-out row is opened for it, so the two can not be compared."
        else:
            train, apart = held_out_rows(rows, self.seed, SHARE)
            mine = self._on_train_rows(data, train).log_likelihood(train, apart)
            why = None
        theirs = float(fit.held_out_log_likelihood_)
        better = bool(theirs > mine)
        self.compared_ = [
            self._candidate("moments", mine, self.compared_[0]["seconds"], self) | {"kept": not better},
            self._candidate("vfedcd", theirs, seconds, fit) | {"kept": better},
        ]
        if why:
            self.compared_[0]["why"] = why
        self.notes_ = (*self.notes_, f"networks were tried because {reason}")
        if better:
            self._take_networks(fit)

    def _on_train_rows(self, data: CausalData, train: Any) -> RowFit:
        """The graph that `moments` finds without the held-out rows, with regressions on rows."""
        alone = MomentSearch(
            **{name: value for name, value in self.get_params(deep=False).items() if name != "networks"}
        )
        alone.set_params(bootstrap=0, engine="one place")
        graph = alone.fit(CausalData(data.values[train], data.names)).adjacency_matrix_
        whole = self._row_fit(data)
        names = [node.name for node in whole.made.nodes]
        at = [data.names.index(name) for name in names]
        return RowFit(whole.made, whole.values, graph[np.ix_(at, at)])

    def _candidate(self, name: str, likelihood: float | None, seconds: float, fit: Any) -> dict[str, Any]:
        names = [str(one) for one in fit.feature_names_in_]
        edges = [[names[i], names[j]] for i, j in np.argwhere(fit.adjacency_matrix_)]
        open_ones = [[names[i], names[j]] for i, j in np.argwhere(np.triu(fit.undirected_, 1))]
        return {
            "method": name,
            "held_out_log_likelihood": likelihood,
            "edges": len(edges),
            "seconds": round(seconds, 2),
            "bytes_sent": sum(sent.get("bytes_sent", 0) for sent in fit.sent_.values()),
            "edge_list": edges,
            "undirected": open_ones,
        }

    def _take_networks(self, fit: VFedCD) -> None:
        """The graph of the networks in place of that of the sums."""
        for name in (
            "adjacency_matrix_",
            "strengths_",
            "threshold_",
            "thresholded_",
            "thresholded_is_dag_",
            "undirected_",
            "figures_",
            "history_",
            "held_out_log_likelihood_",
            "rule_",
        ):
            setattr(self, name, getattr(fit, name))
        self.model_, self.assumes_ = "networks", NETWORKS
        self.effects_: list[dict[str, Any]] = []
        self.confidence_ = self.skeleton_confidence_ = None
        self.warnings_ = tuple(dict.fromkeys([*fit.warnings_]))
        self.explained_ = np.where(np.isfinite(fit.figures_[:, 0]), fit.figures_[:, 0], np.nan)
        self.notes_ = tuple(dict.fromkeys([*self.notes_, *fit.notes_, "the graph is that of vfedcd"]))


NETWORKS = (
    "an effect is any smooth function of its causes, and noise beside it; no cause is missing from the table, and "
    "there are no cycles"
)
