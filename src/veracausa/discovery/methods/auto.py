"""The default: a graph from sums, and networks beside it where the table calls for them; rows in one place choose."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from veracausa.arrays import Mask
from veracausa.data.causal import CausalData
from veracausa.data.causal.columns import without_missing
from veracausa.data.causal.frames import as_causal
from veracausa.discovery.base import clock
from veracausa.discovery.evidence import SURE, GraphEvidence, climbed, near_columns, turned_margins
from veracausa.discovery.gaussian_processes import ROWS, RowEvidence
from veracausa.discovery.line_evidence import LineEvidence, likeliest_lines
from veracausa.discovery.methods import method
from veracausa.discovery.methods.moments.diagnostics import doubts
from veracausa.discovery.methods.moments.estimator import ROWS_A_COLUMN, MomentSearch
from veracausa.discovery.methods.moments.expansion import column_kinds, expand, functions_for
from veracausa.discovery.methods.moments.known import among, known_of, with_required
from veracausa.discovery.methods.moments.row_fits import RowFit
from veracausa.discovery.methods.moments.search import described
from veracausa.discovery.methods.moments.sums import SumTable, sum_table
from veracausa.discovery.methods.vfedcd.diagnostics import OPENED_FEATURES, SUITS
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.uneven_evidence import UnevenEvidence
from veracausa.errors import InputError
from veracausa.events import Event, Observer, event_of
from veracausa.seeding import derive

TOGETHER = 5.0
"""Nats a column that products of two causes gain, beyond which networks are tried."""
UNEVEN = 0.5
"""The share of effects whose noise depends on their causes, beyond which the graph is improved for uneven noise."""
MOST_COLUMNS, MOST_ROWS = 40, 5000
"""Larger tables are not given to networks and processes unasked: they would take many minutes."""
SECONDS = 8e-7
"""Of networks in one place, for a row, a column and an epoch of a search, about."""
NOISY_RATE = 5.0
"""Between parties: how many times as fast an attribute of pure noise learns in the refit."""
EPOCHS = 1300
SECONDS_OF_A_FIT = 1.5e-4
"""Of a regression by a Gaussian process, for a row, about. A climb fits some ten for each column."""
UNEVEN_FITS = 1.5
"""So many times as long, where the noise's curves are fitted, too."""
FITS_A_COLUMN = 12
SENT = ("messages", "bytes_sent")


@method("auto")
@dataclass(kw_only=True, eq=False, repr=False)
class AutoDiscovery(MomentSearch):
    """`moments` first. `vfedcd` in addition where it is asked for, or where rows in one place call for it.

    In one place the likelier graph of the two is then improved edge by edge, by Gaussian processes in place of curves.
    So is the graph of `moments` where noise depends on the causes. It also takes every setting of `moments`.

    Parameters
    ----------
    networks
        Whether `vfedcd` runs, too. None: in one place, where causes act together. Between parties only if it is asked
        for, because partners can solve for columns then.
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
        if not self.networks and self._by_lines(data):
            return self
        uneven = self._noise_is_uneven(data)
        reason = "it was asked for" if self.networks else ""
        if self.networks is None and not uneven and self._causes_act_together(data):
            reason = "causes act together"
        if reason:
            networks = None if folder is None else folder / "networks"
            self._with_networks(data, parties, reason, uneven, tell, networks, resume)
        elif uneven:
            rows, columns = data.values.shape
            wait = UNEVEN_FITS * _seconds_of_a_climb(rows, columns)
            told = {"what": "processes, because noise depends on the causes", "seconds": wait}
            tell(event_of("announced", told))
            begun = time.monotonic()
            straight = self._straight(data)
            self._by_evidence(data, [("straight lines", straight, time.monotonic() - begun)], uneven, tell)
        return self

    @property
    def opens_rows(self) -> bool:
        """Networks between parties open features of every row, in which partners can solve for columns."""
        return bool(self.networks)

    def engine_for(self, count: int, given: bool) -> str:
        engine = super().engine_for(count, given)
        if engine == "federated" and self.networks and self.epsilon is not None:
            raise InputError(
                "networks: between parties they open features of every row, without noise, and epsilon covers the "
                "sums alone; leave one of them out"
            )
        if engine == "federated" and self.networks and self.receiver == "all":
            raise InputError(
                "networks: between parties they need a validator, and receiver = 'all' has none; take "
                "receiver = 'validator', or leave networks out"
            )
        return engine

    def _straight(self, data: CausalData) -> MomentSearch:
        """The graph from sums of lines alone: long tails of uneven noise lead curves astray."""
        settings = self.get_params(deep=False)
        fit = MomentSearch(**{name: value for name, value in settings.items() if name != "networks"})
        fit.set_params(model="linear", bootstrap=0, engine="one place")
        return fit.fit(data)

    def nominal_of(self, data: CausalData) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*data.nominal, *map(str, self.nominal or ())]))

    def _suits_processes(self, data: CausalData) -> bool:
        """Whether the graph has curves, and rows lie in one place and are not too many."""
        rows, columns = data.values.shape
        if self.engine_ == "federated" or self.nominal_of(data) or self.model_ != "additive":
            return False
        return bool(columns <= MOST_COLUMNS and rows <= MOST_ROWS)

    def _noise_is_uneven(self, data: CausalData) -> bool:
        """Whether the noise of half of the effects, all of them numbers, depends on their causes."""
        effects = int(self.adjacency_matrix_.any(axis=0).sum())
        if not effects or not self._suits_processes(data):
            return False
        whole = self._row_fit(data)
        numbers = all(node.kind == "number" for node in whole.made.nodes)
        return bool(numbers and len(whole.uneven()) >= UNEVEN * effects)

    def _causes_act_together(self, data: CausalData) -> bool:
        """Whether products of two causes tell much, so that networks may see more than curves do."""
        if self.tiers is not None or not self._suits_processes(data):
            return False
        return bool(self.found_.scores.get("products", 0.0) > TOGETHER * len(data.names))

    def _by_lines(self, data: CausalData) -> bool:
        """Whether rows in one place speak for straight lines with noise that is not normal; that graph is kept then.

        Sums of pairs see third and fourth moments of the noise, and rows have its whole shape. Where the sums chose
        curves, noise beside the lines that rows lead to has to be independent of the causes.
        """
        rows, columns = data.values.shape
        if self.engine_ == "federated" or self.model not in ("auto", "lingam") or self.nominal_of(data):
            return False
        if self.model_ not in ("lingam", "additive") or columns > MOST_COLUMNS or rows > MOST_ROWS:
            return False
        started, whole = time.monotonic(), self._row_fit(data)
        if any(node.kind != "number" for node in whole.made.nodes) or np.isnan(data.values).any():
            return False
        kept = [data.names.index(node.name) for node in whole.made.nodes]
        known = among(known_of(self.required, self.forbidden, self.tiers, data.names), kept)
        rng = np.random.default_rng(derive(self.seed, "discovery", "lines"))
        evidence = LineEvidence(whole.values, rng)
        mine, is_up = self.adjacency_matrix_[np.ix_(kept, kept)], clock(self.time_limit, self.timer)
        best = likeliest_lines(evidence, mine, known.may, known.required, is_up)
        lines, before_it = evidence.of(best), evidence.of(mine)
        if lines <= before_it or (self.model_ == "additive" and not evidence.bears_out(best, rng)):
            return False
        before = self._candidate("moments", before_it, self.compared_[0]["seconds"], self)
        mine_doubts = doubts(self.found_, data.names)
        self._take_graph(data, whole, kept, best, evidence, "lingam")
        others = [one for one in self.warnings_ if one not in mine_doubts]
        self.warnings_ = (*others, *doubts(self.found_, data.names))
        refined = self._candidate("lines", lines, time.monotonic() - started, self)
        self.compared_ = [before | {"kept": False}, refined | {"kept": True}]
        return True

    def _row_fit(self, data: CausalData) -> RowFit:
        """The graph with regressions on rows."""
        filled, _ = without_missing(data.values, data.names, "median")
        kept = [at for at, column in enumerate(filled.T) if column.std() > 0]
        names = [data.names[at] for at in kept]
        kinds = column_kinds(filled[:, kept], names)
        made = expand(
            filled[:, kept],
            names,
            kinds,
            functions_for(len(filled), len(kept), self.functions, ROWS_A_COLUMN),
            products=True,
        )
        return RowFit(made, filled[:, kept], self.adjacency_matrix_[np.ix_(kept, kept)])

    def _with_networks(
        self,
        data: CausalData,
        parties: Mapping[str, Sequence[Any]] | None,
        reason: str,
        uneven: bool,
        tell: Observer,
        folder: Path | None,
        resume: bool,
    ) -> None:
        """Fit `vfedcd` on the same rows, and improve the likelier graph by them where they are in one place."""
        rows, columns = data.values.shape
        between = self.engine_ == "federated"
        what = f"networks, because {reason}"

        def hear(event: Event) -> None:
            tell(event_of("announced", dict(event) | {"what": what}) if event["event"] == "announced" else event)

        if not between:
            climb = _seconds_of_a_climb(rows, columns) * (UNEVEN_FITS if uneven else 1)
            wait = SECONDS * rows * columns * EPOCHS * (2 if uneven else 1) + climb
            tell(event_of("announced", {"what": what, "seconds": wait}))
        known = known_of(self.required, self.forbidden, self.tiers, data.names)
        forbidden = ~known.may & ~np.eye(columns, dtype=bool)
        protection = {"encryption": self.settings().encryption, "reveal": self.reveal} if between else {}
        # The sums are opened already. From their graph one search will do, which opens features less often than three.
        search = {"start": "moments", "refit_noisy_rate": NOISY_RATE} if between else {}
        fit = VFedCD(
            likelihood="auto" if uneven else "gaussian",
            required=self.required,
            forbidden=forbidden if forbidden.any() else None,
            seed=self.seed,
            engine="federated" if between else "floating",
            link=self.link,
            search=search,
            protection=protection,
            time_limit=None if between else self.time_limit,
            timer=self.timer,
        )
        started = time.monotonic()
        fit.fit(
            data,
            parties=parties,
            observer=hear if between else tell,
            out=folder,
            resume=resume and folder is not None and folder.exists(),
            start_graph=self.adjacency_matrix_ if between else None,
        )
        seconds = time.monotonic() - started
        self.notes_ = (*self.notes_, f"networks were tried because {reason}")
        if between:
            mine = self._candidate("moments", None, self.compared_[0]["seconds"], self) | {
                "kept": True,
                "why": "moments was kept: between parties no held-out row is opened for it, so the two can not be "
                "compared.",
            }
            theirs = {"held_out_log_likelihood": float(fit.held_out_log_likelihood_)}
            self.compared_ = [mine, self._candidate("vfedcd", None, seconds, fit) | theirs | {"kept": False}]
            known_already = (*self.notes_, OPENED_FEATURES)
            said = [one for one in fit.notes_ if one not in known_already and SUITS not in one]
            self.notes_ = (*self.notes_, *(f"networks: {one}" for one in (*said, *fit.warnings_)))
            self.sent_ = _together(self.sent_, fit.sent_)
        else:
            self._by_evidence(data, [("vfedcd", fit, seconds)], uneven, tell)

    def _by_evidence(
        self, data: CausalData, others: Sequence[tuple[str, Any, float]], uneven: bool, tell: Observer
    ) -> None:
        """The likeliest graph of `moments` and the others (name, fit, seconds), improved, in place of the first."""
        started, whole = time.monotonic(), self._row_fit(data)
        kept = [data.names.index(node.name) for node in whole.made.nodes]
        inside = np.ix_(kept, kept)
        known = among(known_of(self.required, self.forbidden, self.tiers, data.names), kept)
        kind = UnevenEvidence if uneven else RowEvidence
        evidence = kind(whole.values, np.random.default_rng(derive(self.seed, "discovery", "evidence")))
        fits: list[tuple[str, Any, float]] = [("moments", self, self.compared_[0]["seconds"]), *others]
        graphs = [fit.adjacency_matrix_[inside] for _, fit, _ in fits]
        before = [
            self._candidate(name, evidence.of(graph), seconds, fit) | {"kept": False}
            for (name, fit, seconds), graph in zip(fits, graphs, strict=True)
        ]

        def progress(share: float) -> None:
            tell({"event": "progress", "what": "evidence", "share": share})

        may, near = known.may, near_columns(graphs)
        start = max(graphs, key=evidence.of)
        best = climbed(evidence, start, may, known.required, near, clock(self.time_limit, self.timer), progress)
        progress(1.0)
        mine_doubts = doubts(self.found_, data.names)
        self._take_graph(data, whole, kept, best, evidence, "additive")
        self.model_, self.assumes_ = "processes", PROCESSES.format(noise=UNEVEN_NOISE if uneven else EVEN_NOISE)
        said = [one for one in self.warnings_ if one not in mine_doubts]
        self.warnings_ = (*said, *doubts(self.found_, data.names))
        refined = self._candidate("processes", evidence.of(best), time.monotonic() - started, self)
        self.compared_ = [*before, refined | {"kept": True}]

    def _take_graph(
        self,
        data: CausalData,
        whole: RowFit,
        kept: Sequence[int],
        graph: Mask,
        evidence: GraphEvidence,
        model: Literal["lingam", "additive"],
    ) -> None:
        """This graph over the kept columns in place of that of the sums, with effects and margins."""
        names, made = data.names, whole.made
        known = known_of(self.required, self.forbidden, self.tiers, names)
        inside = among(known, kept)
        sums = _sums_of(whole)
        margins = turned_margins(evidence, graph, inside.may, inside.required)
        open_ = graph & (margins < SURE)
        found = replace(
            described(sums, self.settings(), graph, model),
            undirected=open_ | open_.T,
            margins=margins,
            explained=evidence.explained(graph),
        )
        scales = np.full(len(names), np.nan)
        scales[list(kept)] = made.scales
        held = self.parties_
        spread = with_required(found.spread_out(kept, len(names)), known)
        self.take_found(spread, names, held, None, known.required, scales)
        if self.bootstrap:
            self.notes_ = (*self.notes_, "confidence: the resamples were of the graph from sums, which was not kept")

    def _candidate(self, name: str, evidence: float | None, seconds: float, fit: Any) -> dict[str, Any]:
        names = [str(one) for one in fit.feature_names_in_]
        edges = [[names[i], names[j]] for i, j in np.argwhere(fit.adjacency_matrix_)]
        open_ones = [[names[i], names[j]] for i, j in np.argwhere(np.triu(fit.undirected_, 1))]
        return {
            "method": name,
            "evidence": evidence,
            "edges": len(edges),
            "seconds": round(seconds, 2),
            "bytes_sent": sum(sent.get("bytes_sent", 0) for sent in fit.sent_.values()),
            "edge_list": edges,
            "undirected": open_ones,
        }


def _together(*parts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What each member sent in all parts of a discovery."""
    members = dict.fromkeys(member for part in parts for member in part)
    return {
        member: {what: sum(part.get(member, {}).get(what, 0) for part in parts) for what in SENT} for member in members
    }


def _sums_of(whole: RowFit) -> SumTable:
    made = whole.made
    return sum_table(made.features.T @ made.features, made.nodes, len(whole.values), None, made.pairs)


def _seconds_of_a_climb(rows: int, columns: int) -> float:
    return SECONDS_OF_A_FIT * min(rows, ROWS) * FITS_A_COLUMN * columns


PROCESSES = (
    "an effect is any smooth function of its causes together, and normal noise {noise}; no cause is missing from the "
    "table, and there are no cycles"
)
EVEN_NOISE = "that does not depend on them"
UNEVEN_NOISE = "whose size may depend on them"
