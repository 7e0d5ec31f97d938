"""VFedCD at one member's own site: weights on shares, and features of rows that partners open."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from veracausa.arrays import Array
from veracausa.atomic import atomic_write
from veracausa.crypto import fixed_point
from veracausa.data.causal.columns import PreparedTable
from veracausa.discovery.base import edge_constraints
from veracausa.discovery.engines.launch import Program, ShareProgram, StrongProgram
from veracausa.discovery.engines.mpc.schedule import NO_BERNOULLI, strong_plan
from veracausa.discovery.engines.shares.cost import expected_cost
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, make_plan
from veracausa.discovery.engines.shares.protocol import counter
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.moments.expansion import ColumnKind
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.privacy import options as output
from veracausa.discovery.privacy.check import check_choice, needs_secrets, stated
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, WireError
from veracausa.events import Event, Observer, event_of
from veracausa.federation.columns import Attributes, all_names
from veracausa.federation.consent import UNENCRYPTED, Row
from veracausa.federation.discovery_job import drops_rows
from veracausa.federation.discovery_site import DiscoverySite
from veracausa.federation.discovery_terms import ASKED_OF_VFEDCD, SOLVABLE, described_vfedcd
from veracausa.federation.vfedcd_messages import declared_vfedcd
from veracausa.federation.vfedcd_result import write_vfedcd
from veracausa.runs import folder as folders
from veracausa.wire.link import Link
from veracausa.wire.message import Declared, Kind

ORDER = Kind("order seed", {}, {"seed": int})
"""Validator to party: what the order of the rows in batches follows from."""
LIVES = Kind("lives", {}, {"before": int})
"""Everybody to everybody at every start: how often this discovery was started before, as far as the sender knows."""
MOST_STARTS = 1 << 20


class VFedCDSite(DiscoverySite):
    """One member of a discovery by networks."""

    def __init__(self, folder: Path, me: str, secret: bool, job: DiscoveryJob, method: VFedCD) -> None:
        self.method: VFedCD = method
        self.drop_missing = drops_rows(method)
        settings = method.settings()
        check_choice(settings, "federated")
        # A seed that everybody knows gives masks, first weights and noise away: where secrets matter there is none.
        self.seed = None if needs_secrets(settings) else method.seed
        if not method.strong and me != VALIDATOR:
            self.warnings = (SOLVABLE,)
            self.question = ASKED_OF_VFEDCD
        if not method.strong and method.encryption == "none":
            self.warnings += (
                f"{UNENCRYPTED}: this is a simulation. Masks follow from the job's seed, which all know, and a partner "
                "reads your columns out of what it is sent; say no if any of them is real",
            )
        super().__init__(folder, me, secret, job, (*job.parties, VALIDATOR))
        self.plan: Plan | None = None
        self.rows: PreparedTable | None = None

    def _declared(self) -> Iterator[Declared]:
        return declared_vfedcd(self.me, self.parties, self.method, self.columns)

    def _described(self, aligned: bool) -> tuple[Row, ...]:
        return described_vfedcd(self.job, self.method, self.me, aligned)

    def _prepare(self, found: Tensor | None) -> tuple[Attributes, tuple[str, ...]]:
        assert self.columns is not None
        data, names = self.columns.data(found), self.columns.names
        nothing = np.zeros((len(names),) * 2, dtype=bool)
        settings = self.method.settings()
        rows, kept, notes = self.method._prepared(settings, data.values, names, nothing, nothing, data.nominal)
        self.rows = rows
        mask = np.zeros(len(names), dtype=bool)
        mask[kept] = True
        kinds: tuple[ColumnKind, ...] = tuple("binary" if binary else "number" for binary in rows.binary)
        return Attributes(names, mask, kinds, len(rows.train) + len(rows.held_out)), (
            *data.notes,
            *notes,
            *rows.warnings,
        )

    def _agree(self, link: Link) -> None:
        for party, theirs in self.said.items():
            if "nominal" in theirs.kinds:
                raise WireError("attributes.kinds", f"{party!r} has a nominal column, and vfedcd takes numbers")
            if self.method.strong and "binary" in theirs.kinds:
                name = theirs.left[theirs.kinds.index("binary")]
                raise InputError(f"column {name!r} (of {party!r}) has two values: {NO_BERNOULLI}")
        plan = self._make_plan()
        self.plan = plan.with_order(self._order(link, plan.order_seed))
        self._keep_plan(self.plan)

    def _make_plan(self) -> Plan:
        settings, count = self.method.settings(), next(iter(self.said.values())).rows
        train = count - round(settings.held_out * count)
        columns = {name: np.broadcast_to(0.0, (count, len(theirs.left))) for name, theirs in self.said.items()}
        names = [name for theirs in self.said.values() for name in theirs.left]
        self.must, self.never = edge_constraints(self.method.required, self.method.forbidden, all_names(self.said))
        self.kept = np.flatnonzero(np.concatenate([theirs.kept for theirs in self.said.values()]))
        plan = (strong_plan if settings.strong else make_plan)(columns, names, settings, train, self.seed)
        if self.rows is not None:
            fixed_point.check_columns(self._values(), plan.names[plan.own(self.me)])  # refused before anybody starts
        return plan

    def _order(self, link: Link, drawn: int) -> int:
        """The order that all take: from the job's seed, or drawn by the validator, once."""
        seed = self.seed
        before = self._plan_before()
        order = drawn if seed is not None or before is None else int(before["order_seed"])
        if self.me == VALIDATOR:
            for party in self.parties:
                link.declare(ORDER, peer=party)
                link.send(party, ORDER, 0, seed=order)
            return order
        link.declare(ORDER, peer=VALIDATOR)
        said = link.receive(VALIDATOR, ORDER, 0).meta["seed"]
        assert isinstance(said, int)
        if not 0 <= said < 1 << 64:
            raise WireError("order seed.seed", f"{VALIDATOR!r} sent {said}, which is no seed")
        if (seed is not None or before is not None) and said != order:
            raise WireError("order seed.seed", f"{VALIDATOR!r} has another order of rows than was agreed on")
        return said

    @property
    def _plan_path(self) -> Path:
        return self.store.folder / "plan.json"

    def _plan_before(self) -> dict[str, Any] | None:
        if not self._plan_path.is_file():
            return None
        before: dict[str, Any] = json.loads(self._plan_path.read_text(encoding="utf-8"))
        return before

    def _keep_plan(self, plan: Plan) -> None:
        described = json.loads(json.dumps(plan.describe()))
        before = self._plan_before() or {"lives": 0}
        for name, value in described.items():
            if name in before and before[name] != value:
                raise InputError(f"{self.path}: this discovery was begun with another {name}; remove it to begin anew")
        self._write_plan(before | described | {"order_seed": plan.order_seed})

    def _write_plan(self, described: Mapping[str, Any]) -> None:
        atomic_write(self._plan_path, json.dumps(described).encode())

    @property
    def _epochs(self) -> int:
        assert self.plan is not None
        return self.plan.epochs

    def _take_part(self, link: Link, hear: Observer, start_step: int | None) -> None:
        assert self.plan is not None
        self.store.forget_after(start_step or 0)
        if start_step is None:
            self.store.ledger.resume(0, 0)
        restart_index = self._next_start(link)
        if not self.method.strong:
            self.method.announced_ = expected_cost(self.plan).state()
            folders.set_status(self.path, announced=self.method.announced_)
            hear(event_of("announced", self.method.announced_))
        result, started = DiscoveryResult(self.plan.names), time.monotonic()

        def also_here(event: Event) -> None:
            result.hear(event)
            hear(event)

        link.ledger = self.store.ledger
        self._program(start_step, restart_index)(link, also_here)
        if self.method.strong:
            self._send_graph(link, result, counter(restart_index, 0))
        noise = stated(self.plan, restart_index, seeded=self.seed is not None)
        write_vfedcd(self, result, noise, time.monotonic() - started)

    def _next_start(self, link: Link) -> int:
        """A number that no start of this discovery had before, the same for all: masks are drawn for each anew."""
        before = self._plan_before()
        assert before is not None
        known = int(before["lives"])
        link.declare(LIVES)
        link.broadcast(LIVES, 0, before=known)
        for peer, message in link.gather(LIVES, 0).items():
            theirs = message.meta["before"]
            assert isinstance(theirs, int)
            if not 0 <= theirs < MOST_STARTS:
                raise WireError("lives.before", f"{peer!r} claims {theirs} starts")
            known = max(known, theirs)
        link.ledger.flush()
        # Written before anything else leaves: a start that ends at once counts, too.
        self._write_plan(before | {"lives": known + 1})
        return known

    def _values(self) -> Array:
        assert self.rows is not None
        return np.concatenate([self.rows.train, self.rows.held_out])

    def _program(self, start: int | None, restart_index: int) -> Program:
        plan, seed = self.plan, self.seed
        assert plan is not None
        inside = np.ix_(self.kept, self.kept)
        must, allowed = self.must[inside], ~np.eye(plan.d, dtype=bool) & ~self.never[inside]
        values = None if self.rows is None else self._values()
        if self.method.strong:
            strong = plan, self.me, values, allowed, must, seed, None, self.path, start, restart_index
            return StrongProgram(*strong, tells_epochs=True)
        binary = None if self.rows is None else self.rows.binary
        given = plan, self.me, values, allowed, must, seed, binary, self.path, start, restart_index
        return ShareProgram(*given, tells_epochs=True)

    def _send_graph(self, link: Link, result: DiscoveryResult, number: int) -> None:
        """The strong mode opens the graph to the validator alone, which then sends it to the others."""
        assert self.plan is not None
        kind = output.result_kind("all", self.plan.d, 0)
        if self.me != VALIDATOR:
            link.declare(kind, peer=VALIDATOR)
            sent = link.receive(VALIDATOR, kind, number).tensors
            result.sent_to[self.me] = output.received(sent, self.plan.d, self.plan.own(self.me))
            return
        graph = result.graph(self.must[np.ix_(self.kept, self.kept)])
        for party in self.parties:
            link.declare(kind, peer=party)
            link.send(party, kind, number, output.sent_to("all", graph, result.strengths, slice(0)))
