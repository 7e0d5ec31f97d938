"""Discovery from sums as an estimator: functions of columns at home, one release of sums, a search on the sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ValidationError

from veracausa.arrays import Array, Mask
from veracausa.data.causal import CausalData
from veracausa.data.causal.columns import Missing, Pairwise, PreparedColumns, prepare
from veracausa.data.causal.frames import as_causal
from veracausa.discovery.base import clock
from veracausa.discovery.methods import method
from veracausa.discovery.methods.moments.diagnostics import ASSUMES, doubts, effects, few_rows
from veracausa.discovery.methods.moments.expansion import LEAST, ColumnKind, column_kinds, expand, functions_for
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.known import among, known_of, with_required
from veracausa.discovery.methods.moments.resampling import EdgeShares, drawn_sums, resampled_edges, row_weights
from veracausa.discovery.methods.moments.search import Known, search_sums
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.moments.sums import SumTable, sum_table
from veracausa.discovery.party_columns import FederatedDiscovery, held_columns
from veracausa.errors import InputError, wrong_value
from veracausa.events import Observer, event_of
from veracausa.seeding import derive

ROWS_A_COLUMN = 1
"""In one place, where sums are not sent, all columns together may have a feature for each so many rows."""

MOST_FOR_PRODUCTS = 40
"""Columns in one place of which every two are also multiplied."""


def _with_settings(estimator: type[MomentSearch]) -> type[MomentSearch]:
    """Make every field of `SumsSettings` a parameter."""
    for name, field in SumsSettings.model_fields.items():
        estimator.__annotations__[name] = field.annotation
        setattr(estimator, name, field.default)
    return estimator


@method("moments")
@dataclass(kw_only=True, eq=False, repr=False)
@_with_settings
class MomentSearch(FederatedDiscovery):
    """Causal discovery from sums over rows: an order search on additive regressions that are read off the sums.

    It also takes every field of `moments.settings.SumsSettings` as a parameter.

    Parameters
    ----------
    tiers
        What comes first and what later: lists of columns, the earliest first, or a mapping of column to number. No
        column causes one of an earlier tier.
    nominal
        Columns whose numbers name categories, beside those that hold words.
    threshold
        An edge with a smaller strength is left out.
    engine
        `federated` runs every party and the validator as programs that exchange messages. `one place` sums up all
        columns here. By default the first where `fit` is given parties.
    link
        How the parties' programs run: in `threads` or in `processes`.

    Examples
    --------
    >>> MomentSearch().fit(frame, parties={"a": ["age"], "b": ["dose"]}).edges_  # doctest: +SKIP
    """

    fast_settings: ClassVar[Mapping[str, Any]] = {"starts": 1}

    threshold: float = 0.0
    missing: Missing | Pairwise = "pairwise"  # type: ignore[assignment]
    tiers: Any = None
    nominal: Any = None
    engine: Literal["one place", "federated"] | None = None
    link: Literal["threads", "processes"] = "threads"

    def settings(self) -> SumsSettings:
        """How it searches, and who may open what."""
        try:
            return SumsSettings(**{name: getattr(self, name) for name in SumsSettings.model_fields})
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(map(str, problem["loc"]))
            raise InputError(f"moments: {place}: {wrong_value(problem)} (got {problem.get('input')!r})") from None

    def job_settings(self) -> dict[str, Any]:
        self.settings()
        return super().job_settings()

    def revealing(self) -> Literal["all", "own"]:
        return self.settings().reveal

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
        """Learn from a pandas or polars frame or an array; `parties` maps each party to its columns.

        A federated fit keeps ledgers and checkpoints in `out`, and goes on from them with `resume`. One in one place
        begins anew.
        """
        settings, tell = self.settings(), observer or (lambda event: None)
        data = as_causal(X, {str(column) for columns in (parties or {}).values() for column in columns})
        held = held_columns(parties, data.names)
        engine = self.engine_for(len(held), parties is not None)
        known = known_of(self.required, self.forbidden, self.tiers, data.names)
        nominal = tuple(dict.fromkeys([*data.nominal, *map(str, self.nominal or ())]))
        if odd := sorted(set(nominal) - set(data.names)):
            raise InputError(f"nominal: there is no column {odd[0]!r}; the columns are {', '.join(data.names)}")
        kinds = column_kinds(data.values, data.names, nominal)
        self.engine_ = engine
        self.history_: list[dict[str, float]] = []
        if engine == "federated":
            self._fit_between(settings, data, kinds, held, known, tell, None if out is None else Path(out), resume)
        else:
            self._fit_here(settings, data, nominal, known, held, tell)
        return self

    @property
    def opens_rows(self) -> bool:
        """Whether parties open anything of a single row beside the sums."""
        return False

    def engine_for(self, count: int, given: bool) -> str:
        engine = self.engine or ("federated" if given and count > 1 else "one place")
        settings = self.settings()
        if engine == "federated" and count < 2:
            raise InputError("engine: 'federated' is for two parties or more; name them, or take 'one place'")
        if engine != "federated" and settings.epsilon is not None:
            raise InputError("epsilon: in one place no sum is released, so no noise is added; name the parties")
        if engine == "federated" and settings.receiver == "all" and self.time_limit is not None:
            raise InputError(
                "time_limit: every party searches on its own clock, and all must find the same graph; leave it out, or "
                "take receiver = 'validator'"
            )
        return engine

    # ---- in one place ------------------------------------------------------------------------------------------------

    def _fit_here(
        self,
        settings: SumsSettings,
        data: CausalData,
        nominal: Sequence[str],
        known: Known,
        held: dict[str, tuple[str, ...]],
        tell: Observer,
    ) -> None:
        from veracausa.discovery.engines.sums.cost import search_seconds

        ready = prepare(
            data.values,
            data.names,
            standardise=False,
            missing=self.missing,
            constant=self.constant,
            collinear=self.collinear,
            nominal=nominal,
            category_rows=LEAST,
        )
        kept = ready.kept
        functions = functions_for(len(ready.values), len(kept), settings.functions, ROWS_A_COLUMN)
        seconds = search_seconds(len(kept), functions, settings.starts, settings.bootstrap)
        self.announced_ = {"seconds": seconds, "bytes": 0, "releases": 0, "features": functions * len(kept)}
        tell(event_of("announced", self.announced_))
        kinds = column_kinds(ready.values, ready.names, ready.nominal)
        products = settings.products if settings.products is not None else len(kept) <= MOST_FOR_PRODUCTS
        made = expand(ready.values, ready.names, kinds, functions, products=products)
        rows, features = len(ready.values), made.features
        time_is_up = clock(self.time_limit, self.timer)
        inside = among(known, kept)
        tell({"event": "progress", "what": "search", "share": 0.0})
        gram = features.T @ features
        rng = np.random.default_rng(derive(self.seed, "discovery", "moments"))
        found = search_sums(sum_table(gram, made.nodes, rows, None, made.pairs), settings, inside, rng, time_is_up)
        tell({"event": "progress", "what": "search", "share": 1.0})

        def resamples() -> Iterator[SumTable]:
            for number in range(1, settings.bootstrap + 1):
                if settings.resampling == "sums":
                    draw = np.random.default_rng(derive(self.seed, "discovery", "sums drawn", number))
                    yield sum_table(drawn_sums(gram, rows, draw), made.nodes, rows, None, made.pairs)
                else:
                    weights = row_weights(rows, self.seed, number)
                    weighted = features.T @ (features * weights[:, None])
                    yield sum_table(weighted, made.nodes, int(weights.sum()), None, made.pairs)

        def progress(share: float) -> None:
            tell({"event": "progress", "what": "resamples", "share": share})

        shares = None
        if settings.bootstrap:
            count, seed = settings.bootstrap, self.seed
            shares = resampled_edges(resamples(), count, found, settings, inside, seed, time_is_up, progress)
            shares = shares.spread_out(kept, len(data.names))
        whole = with_required(found.spread_out(kept, len(data.names)), known)
        scales = np.full(len(data.names), np.nan)
        scales[list(kept)] = made.scales
        self.sent_: dict[str, dict[str, int]] = {}
        self.noise_: dict[str, Any] | None = None
        self.take_found(whole, data.names, held, shares, known.required, scales)
        self.notes_ = (*data.notes, *ready.notes, *made.notes, *few_rows(rows))
        self.warnings_ = (*ready.warnings, *doubts(whole, data.names))

    # ---- between parties ---------------------------------------------------------------------------------------------

    def _fit_between(
        self,
        settings: SumsSettings,
        data: CausalData,
        kinds: Sequence[ColumnKind],
        held: dict[str, tuple[str, ...]],
        known: Known,
        tell: Observer,
        out: Path | None,
        resume: bool,
    ) -> None:
        from veracausa.discovery.engines.sums.cost import expected_cost
        from veracausa.discovery.engines.sums.launch import run_sums
        from veracausa.discovery.engines.sums.plan import SumsPlan
        from veracausa.discovery.engines.sums.words import noise_in_words, protection_in_words

        for name, only in (("missing", "pairwise"), ("constant", "drop"), ("collinear", "keep")):
            if getattr(self, name) != only:
                raise InputError(
                    f"{name} = {getattr(self, name)!r}: a party sees its own columns alone; leave it at {only!r}, or "
                    "take engine 'one place'"
                )
        # In the order in which a party names its columns: where they stand in a table decides nothing.
        at = {name: position for position, name in enumerate(data.names)}
        places = {party: [at[name] for name in own] for party, own in held.items()}
        order = [place for own in places.values() for place in own]
        plan = SumsPlan(settings, held, len(data.values), derive(self.seed, "discovery", "sums"))
        plan.check()
        cost = expected_cost(plan)
        self.announced_ = cost.state()
        tell(event_of("announced", self.announced_))
        result = run_sums(
            plan,
            {party: data.values[:, own] for party, own in places.items()},
            {party: [kinds[place] for place in own] for party, own in places.items()},
            among(known, order),
            # Masks that follow from a seed hide nothing, and noise protects nobody.
            seed=self.seed if settings.encryption == "none" and settings.epsilon is None else None,
            link=self.link,
            out=out,
            resume=resume,
            observer=tell,
            time_limit=self.time_limit,
        )
        assert result.found is not None
        back = np.argsort(order).tolist()
        found, shares = result.found.ordered(back), result.shares
        self.sent_ = {
            member: {"messages": sent["messages"], "bytes_sent": sent["bytes"]} for member, sent in result.sent.items()
        }
        self.noise_ = noise_in_words(plan, result.account)
        self.take_found(found, data.names, held, None if shares is None else shares.ordered(back), known.required)
        said = (*data.notes, *result.notes, *few_rows(plan.rows), *protection_in_words(plan, self.opens_rows))
        self.notes_ = tuple(dict.fromkeys(said))
        self.warnings_ = (*dict.fromkeys(result.warnings), *doubts(found, data.names))

    # ---- what a fit leaves -------------------------------------------------------------------------------------------

    def take_found(
        self,
        found: SumsFound,
        names: Sequence[str],
        held: dict[str, tuple[str, ...]],
        shares: EdgeShares | None = None,
        required: Mask | None = None,
        scales: Array | None = None,
    ) -> None:
        """Everything that follows from the graph, over the columns `names`."""
        weak = found.adjacency & (found.strengths < self.threshold)
        if required is not None:
            weak &= ~required
        if weak.any():
            found = found.without(weak)
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        self.parties_ = held
        self.found_ = found
        self.strengths_: Array = found.strengths
        self.adjacency_matrix_ = found.adjacency
        self.undirected_ = found.undirected
        self.threshold_ = self.threshold
        self.thresholded_, self.thresholded_is_dag_ = found.adjacency, True
        self.explained_ = found.explained
        """(d,): the share of each column's variance that its causes explain."""
        self.effects_ = effects(found, names, scales)
        self.confidence_ = None if shares is None else shares.directed
        self.skeleton_confidence_ = None if shares is None else shares.skeleton
        self.model_: str = found.model
        self.assumes_ = ASSUMES[found.model]

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        raise NotImplementedError("fit does it all")
