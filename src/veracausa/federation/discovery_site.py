"""A causal discovery at one party's own site, or at the validator's, which has no data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.arrays import Array
from veracausa.atomic import atomic_write
from veracausa.crypto import fixed_point
from veracausa.data.causal.columns import PreparedTable
from veracausa.data.tables import OwnTable
from veracausa.discovery.base import edge_constraints
from veracausa.discovery.discover import DiscoveryRun
from veracausa.discovery.engines.launch import Program, ShareProgram, StrongProgram
from veracausa.discovery.engines.mpc.schedule import strong_plan
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, make_plan
from veracausa.discovery.privacy import options as output
from veracausa.discovery.privacy.check import check_choice, needs_secrets, stated
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, VeracausaError, WireError
from veracausa.events import Event, Observer
from veracausa.federation.columns import Attributes, SiteColumns, all_names, exchange
from veracausa.federation.consent import UNENCRYPTED, described_discovery
from veracausa.federation.discovery_job import own_discovery
from veracausa.federation.discovery_messages import declared_discovery
from veracausa.federation.discovery_result import write_result
from veracausa.federation.members import first_problem
from veracausa.federation.party_file import ALIGNMENT, own_options, party_tree
from veracausa.federation.row_matching import IdFile, OwnIds, agree_on_kept, noting, rows_in_order
from veracausa.federation.site_program import OPEN_ORDER, SiteProgram, order_key
from veracausa.runs import folder as folders
from veracausa.wire.link import Link
from veracausa.wire.message import Kind

ORDER = Kind("order seed", {}, {"seed": int})
"""Validator to party: what the order of the rows in batches follows from."""
LIVES = Kind("lives", {}, {"before": int})
"""Everybody to everybody at every start: how often this discovery was started before, as far as the sender knows."""
MOST_STARTS = 1 << 20


class DiscoverySite(SiteProgram):
    """One member of a discovery; the one named `validator` looks at the graph and holds no column.

    With `secret`, the first party orders rows by a secret of its own; without, they lie as in its file.
    """

    engine = "discovery"

    def __init__(self, folder: Path, me: str, secret: bool) -> None:
        super().__init__(folder, me)
        self.job, self.method = own_discovery(folder, me)
        self.parties = tuple(self.job.parties)
        self.peers = tuple(name for name in (*self.parties, VALIDATOR) if name != me)
        settings = self.method.settings()
        check_choice(settings, "federated")
        # A seed that everybody knows gives masks, first weights and noise away: where secrets matter there is none.
        self.seed = None if needs_secrets(settings) else self.method.seed
        self.columns = None if me == VALIDATOR else SiteColumns(self.job, self.method, own_table(folder), me, folder)
        if self.columns is not None and self.columns.table is not None:
            brought = IdFile(self.columns.ids, str(self.columns.table.path))
            self.ids = OwnIds(me, AlignmentSettings(parties=self.parties), _alignment(folder), [brought])
        self.declared = tuple(declared_discovery(me, self.parties, self.method, self.columns, self.ids))
        self.described = described_discovery(self.job, self.method, aligned="name" not in self.job.data)
        if self.method.encryption == "none" and not self.method.strong:
            self.warnings = (
                f"{UNENCRYPTED}: this is a simulation. Masks follow from the job's seed, which all know, and a partner "
                "reads your columns out of what it is sent; say no if any of them is real",
            )
        described = self.job.to_toml().encode()
        config = self.path / "config.toml"
        if config.is_file() and config.read_bytes() != described:
            raise InputError(f"{self.path}: was begun with another job; remove it to begin anew")
        self.path.mkdir(parents=True, exist_ok=True)
        atomic_write(config, described)
        self._open_store(3, () if self.columns is None else (self.columns.own_bytes(),))
        self._key: bytes | None = None
        if me == self.parties[0] and self.ids is not None:
            self._key = order_key(self.store.folder, secret)
            self.warnings += () if secret else (OPEN_ORDER,)
        self.plan: Plan | None = None
        self.rows: PreparedTable | None = None
        self.said: dict[str, Attributes] = {}
        self.notes: tuple[str, ...] = ()

    def align(self, link: Link, notify: Observer) -> None:
        self._record_alignment(link)
        own = None
        if self.columns is not None:
            found, warned = None, []
            if self.ids is not None:
                fingerprint, state = self._kept()
                reuse, fingerprint = agree_on_kept(link, self.parties, fingerprint)
                if reuse:
                    found, warned = state["rows"], state.get("notes", [])
                else:
                    hear = noting(notify, warned)
                    found = rows_in_order(self.ids.brought(0), self.ids.settings, link, hear, self._key)
                    self._keep(fingerprint, {"rows": found, "notes": warned})
            self.rows, own, notes = self.columns.prepared(found)
            self.notes = (*warned, *notes)
        self.said = exchange(link, self.parties, own)
        plan = self._make_plan()
        self.plan = plan.with_order(self._order(link, plan.order_seed))
        self._keep_plan(self.plan)
        link.ledger.flush()

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

    def run(self, link: Link, notify: Observer, start_step: int | None) -> None:
        assert self.plan is not None, "align comes first"
        if self.method.strong and start_step is not None:
            raise InputError("strong: such a discovery keeps no checkpoints; begin it anew")
        self.store.forget_after(start_step or 0)
        if start_step is None:
            self.store.ledger.resume(0, 0)
        restart_index = self._next_start(link)
        folders.set_status(self.path, state="running", epochs=self.plan.epochs, step=start_step or 0, error=None)
        result, started = DiscoveryResult(self.plan.names), time.monotonic()

        def hear(event: Event) -> None:
            if event["event"] == "epoch":
                folders.set_status(self.path, epoch=event["step"], step=event["step"])
            result.hear(event)
            notify(event)

        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            link.ledger = self.store.ledger
            self._program(start_step, restart_index)(link, hear)
            if self.method.strong:
                self._send_graph(link, result)
            noise = stated(self.plan, restart_index, seeded=self.seed is not None)
            write_result(self, result, noise, time.monotonic() - started)
            folders.set_status(self.path, state="done")
            DiscoveryRun(self.path).report()
        except BaseException as error:
            message = str(error) if isinstance(error, VeracausaError) else f"{type(error).__name__}: {error}"
            folders.set_status(self.path, state="failed", error=message)
            raise
        finally:
            torch.set_num_threads(threads)

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
            return StrongProgram(plan, self.me, values, allowed, must, seed)
        binary = None if self.rows is None else self.rows.binary
        return ShareProgram(plan, self.me, values, allowed, must, seed, binary, self.path, start, restart_index)

    def _send_graph(self, link: Link, result: DiscoveryResult) -> None:
        """The strong mode opens the graph to the validator alone, which then sends it to the others."""
        assert self.plan is not None
        kind = output.result_kind("all", self.plan.d, 0)
        if self.me != VALIDATOR:
            link.declare(kind, peer=VALIDATOR)
            sent = link.receive(VALIDATOR, kind, 0).tensors
            result.sent_to[self.me] = output.received(sent, self.plan.d, self.plan.own(self.me))
            return
        graph = result.graph(self.must[np.ix_(self.kept, self.kept)])
        for party in self.parties:
            link.declare(kind, peer=party)
            link.send(party, kind, 0, output.sent_to("all", graph, result.strengths, slice(0)))


def own_table(folder: Path) -> OwnTable:
    """What this party's `party.toml` says of its table."""
    tree = party_tree(folder)
    if odd := sorted(set(tree) - {"data", ALIGNMENT}):
        raise InputError(
            f"{folder / 'party.toml'}: {odd[0]}: of a discovery only [data] and [{ALIGNMENT}] are a party's own; leave "
            "it out"
        )
    try:
        return OwnTable.model_validate(tree.get("data", {}))
    except ValidationError as error:
        raise InputError(f"{folder / 'party.toml'}: data: {first_problem(error)}") from None


def _alignment(folder: Path) -> OwnOptions:
    return own_options(party_tree(folder), folder)
