"""The engine between parties: every party and the validator is a program, and all of them exchange messages.

The same programs run here in threads or processes, and each at its own site in a federation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.atomic import atomic_write
from veracausa.crypto import fixed_point
from veracausa.data.causal.columns import PreparedTable
from veracausa.discovery.engines.mpc.party import StrongParty
from veracausa.discovery.engines.mpc.replicated import ReplicatedMember
from veracausa.discovery.engines.mpc.schedule import NO_BERNOULLI, strong_plan
from veracausa.discovery.engines.mpc.servers import servers_of
from veracausa.discovery.engines.mpc.validator import StrongValidator
from veracausa.discovery.engines.shares.cost import expected_cost
from veracausa.discovery.engines.shares.offline_phase import PhaseLedger
from veracausa.discovery.engines.shares.party import AttributeParty
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, make_plan
from veracausa.discovery.engines.shares.validator import Validator
from veracausa.discovery.graphs import constraints
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.check import stated
from veracausa.discovery.privacy.party import PrivateParty
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.events import Event, Observer, ProgressCallback, event_of
from veracausa.runs.folder import check_free, locked
from veracausa.runs.store import Store, common_step
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

PATIENCE = 120.0
PATIENCE_ENCRYPTING = 3600.0
PLANS = {False: "plan.json", "dealer": "strong.json", "replicated": "replicated.json"}
"""What a resume must have the same, by the strong mode: none goes on with another's checkpoints."""
Watch = Callable[[AttributeParty], None]
"""Is shown every party before it runs, and may put itself between the party and its share engine; with threads only."""


@dataclass
class Program:
    """One party or the validator, ready to be started. Only its own columns travel with it."""

    plan: Plan
    name: str
    values: Array | None
    """None: the validator."""
    allowed: Mask
    required: Mask
    seed: int | None
    binary: Mask | None = None
    out: Path | None = None
    start: int | None = None
    restart_index: int = 0
    """How often this discovery was started before."""
    watch: Watch | None = None
    start_graph: Mask | None = None
    """For the validator: edges that come first in the order."""
    tells_epochs: bool = False
    """Whether a party tells of its epochs, too; where all are watched from one place, the validator's say enough."""

    def __call__(self, link: Link, notify: Observer) -> None:
        try:
            self._run(link, notify)
        except (VeracausaError, OSError):
            raise
        except Exception as error:  # the reader must know whose
            raise RunError(f"party {self.name!r} failed: {type(error).__name__}: {error}") from error

    def _run(self, link: Link, notify: Observer) -> None:
        store = None
        if self.out is not None:
            store = Store(self.out, self.name)
            store.start_step = self.start
            store.announce_to(link)
        self.take_part(link, store, notify)
        link.ledger.flush()
        sent = link.ledger.totals() if isinstance(link.ledger, PhaseLedger) else None
        totals = sent or {"bytes": link.ledger.bytes_sent, "messages": link.ledger.messages}
        notify({"event": "finished", "party": self.name, "sent": totals})

    def take_part(self, link: Link, store: Store | None, notify: Observer) -> None:
        """The member's part of the protocol, from its first message to its last."""
        raise NotImplementedError

    def _teller(self, notify: Observer) -> Callable[[int], None]:
        """What hears after every epoch how many are done, and passes it on."""
        of = self.plan.epochs
        return lambda done: notify({"event": "epoch", "party": self.name, "epoch": done, "step": done, "of": of})


class ShareProgram(Program):
    """A member of a discovery on shares of two parties."""

    def take_part(self, link: Link, store: Store | None, notify: Observer) -> None:
        link.ledger = PhaseLedger(None if store is None else store.ledger.path)
        if store is not None:
            store.ledger = link.ledger
        if self.values is None:
            known = self.plan, self.allowed, self.required
            validator = Validator(*known, notify, self.restart_index, self.seed, self.start_graph)
            validator.run(link, store)
            assert validator.found is not None
            notify({"event": "result", "found": _lists(validator.found.arrays), "history": validator.history})
            return
        binary = np.zeros(self.values.shape[1], dtype=bool) if self.binary is None else self.binary
        given = self.plan, self.name, self.values, binary, self.allowed, self.seed, self.restart_index
        party = (AttributeParty if self.plan.privacy is None else PrivateParty)(*given)
        if self.tells_epochs:
            party.tell = self._teller(notify)
        if self.watch is not None:
            self.watch(party)
        party.run(link, store)
        graph, figures = party.known.tolist(), party.figures.tolist()
        notify({"event": "graph", "party": self.name, "graph": graph, "figures": figures})


class StrongProgram(Program):
    """A member of a discovery in which nothing of a row is opened, with a dealer or without one."""

    def take_part(self, link: Link, store: Store | None, notify: Observer) -> None:
        if store is not None:
            link.ledger = store.ledger
        member = self.member(link, notify)
        if self.tells_epochs and self.values is not None:  # the validator's record says it of itself
            member.tell = self._teller(notify)
        member.run(store)
        if self.values is None:
            found = member.judge.fit()
            notify({"event": "result", "found": _lists(found.arrays), "history": found.history})

    def member(self, link: Link, notify: Observer) -> Any:
        """What takes part: it has targets at a party, and a judge at the validator."""
        how: dict[str, Any] = {"notify": notify, "restart_index": self.restart_index}
        if self.plan.settings.strong == "replicated":
            given = self.plan, self.name, self.values, self.allowed, self.required, link, self.seed
            return ReplicatedMember(*given, **how)
        if self.values is None:
            return StrongValidator(self.plan, self.allowed, self.required, link, self.seed, **how)
        return StrongParty(self.plan, self.name, self.values, self.allowed, link, self.seed, self.restart_index)


@dataclass(frozen=True)
class Federation:
    """The engine `federated`: parties that hold `positions` of the table's columns, and a validator."""

    positions: Mapping[str, Sequence[int]]
    seed: int | None
    link: Literal["threads", "processes"] = "threads"
    observer: Observer = lambda event: None
    watch: Watch | None = None

    def expected(self, settings: Settings, table: PreparedTable) -> dict[str, Any] | None:
        if settings.strong or settings.protocol == "literal":
            return None
        columns = {party: np.broadcast_to(0.0, (len(table.train), len(own))) for party, own in self.positions.items()}
        names = [table.names[at] for own in self.positions.values() for at in own]
        return expected_cost(make_plan(columns, names, settings, len(table.train), self.seed)).state()

    def learn(
        self,
        settings: Settings,
        table: PreparedTable,
        progress: ProgressCallback,
        out: Path | None = None,
        resume: bool = False,
    ) -> DiscoveryResult:
        # Attributes are numbered party by party: the parties' columns are cut out once, the result is put back once.
        order = [at for own in self.positions.values() for at in own]
        square = np.ix_(order, order)
        columns = {
            party: np.concatenate([table.train[:, own], table.held_out[:, own]])
            for party, own in ((party, list(positions)) for party, positions in self.positions.items())
        }

        def hear(event: Event) -> None:
            if event["event"] == "epoch":
                progress(event["step"] / event["of"])
            elif event["event"] == "noise":
                self.observer(event)

        # A fit killed before its parties wrote anything begins anew.
        begun = resume and out is not None and (out / PLANS[settings.strong]).is_file()
        result = starter(settings)(
            columns,
            [table.names[at] for at in order],
            settings,
            binary=table.binary[order],
            required=table.required[square],
            forbidden=table.forbidden[square],
            start_graph=None if table.start is None else table.start[square],
            train_rows=len(table.train),
            seed=self.seed,
            link=self.link,
            out=out,
            resume=begun,
            observer=hear,
            watch=self.watch,
        )
        return result.ordered([int(at) for at in np.argsort(order)])


def starter(settings: Settings) -> Callable[..., DiscoveryResult]:
    """What starts the parties' programs: of the protocol on shares, or of the published one."""
    if settings.protocol == "shares":
        return run_federation
    from veracausa.discovery.engines.literal.launch import run_literal

    return run_literal


def run_federation(
    columns: Mapping[str, Array],
    names: Sequence[str],
    settings: Settings,
    *,
    binary: Mask | None = None,
    required: Mask | None = None,
    forbidden: Mask | None = None,
    start_graph: Mask | None = None,
    train_rows: int | None = None,
    seed: int | None = None,
    link: Literal["threads", "processes"] = "threads",
    timeout: float | None = None,
    checkpoint_every: int = 10,
    out: Path | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
    watch: Watch | None = None,
    strong: bool | Literal["dealer", "replicated"] | None = None,
    **agreed: Any,
) -> DiscoveryResult:
    """Learn the strengths of all edges between the parties' attributes, with every party a program of its own.

    `columns` holds each party's (n, d_k) prepared values, the same rows in the same order. Attributes are numbered
    party by party, and `names`, `binary`, `required` and `forbidden` follow that order. The first `train_rows`
    train (by default all but the settings' share), the others choose the threshold. A seed makes a simulation
    repeatable, and its masks known to who has the seed. Without one they come from the system. With `out`, the parties
    leave checkpoints there, and `resume` goes on from them. A party that says nothing for `timeout` seconds is lost.
    By default these are many where it may be encrypting all that time. `agreed` are fields of the plan that stand over
    the settings.
    """
    if strong is not None:
        settings = settings.model_copy(update={"strong": "replicated" if strong is True else strong})
    strong = settings.strong
    agreed["checkpoint_every"] = checkpoint_every
    plan = (strong_plan if strong else make_plan)(columns, names, settings, train_rows, seed, **agreed)
    two_valued = np.zeros(plan.d, dtype=bool) if binary is None else np.asarray(binary, dtype=bool)
    if strong and two_valued.any():
        first = names[int(np.argmax(two_valued))]
        raise InputError(f"column {first!r} has two values: {NO_BERNOULLI}")
    must, never = constraints(plan.d, required, forbidden)
    allowed = ~np.eye(plan.d, dtype=bool) & ~never
    for party, values in columns.items():
        fixed_point.check_columns(values, plan.names[plan.own(party)])  # refuse before anybody is started
    start, restart_index = None, 0
    if out is not None:
        plan, start, restart_index = prepare_folder(out, plan, resume, seed, PLANS[strong])
    noise = None if strong else stated(plan, restart_index, seeded=seed is not None)
    if noise is not None:
        observer(event_of("noise", noise))
    program = StrongProgram if strong else ShareProgram
    given = allowed, must, seed
    more: dict[str, Any] = {"out": out, "start": start, "restart_index": restart_index, "watch": watch}
    programs: dict[str, Program] = {
        party: program(plan, party, values, *given, two_valued[plan.own(party)], **more)
        for party, values in columns.items()
    }
    programs[VALIDATOR] = program(plan, VALIDATOR, None, *given, **more | {"watch": None, "start_graph": start_graph})
    result = DiscoveryResult(plan.names, noise=noise)

    def hear(event: Event) -> None:
        if not result.hear(event):
            observer(event)

    if timeout is None:
        timeout = PATIENCE if plan.encryption == "none" else PATIENCE_ENCRYPTING
    launch = Launch(link, timeout, cpu_threads=dict.fromkeys(programs, 1))
    with nullcontext() if out is None else locked(out):
        launch.run(programs, hear)
    result.sent = {name: result.sent[name] for name in programs}
    result.sent_to = {party: result.sent_to[party] for party in plan.parties if party in result.sent_to}
    if result.own_figures:
        result.figures = np.concatenate([result.own_figures[party][result.search] for party in plan.parties])
    return result


def prepare_folder(
    out: Path, plan: Plan, resume: bool, seed: int | None, name: str = PLANS[False]
) -> tuple[Plan, int | None, int]:
    """Write the plan down, or go on with the one that is there.

    With it come the step of the newest common checkpoint, and how often this discovery was started before.
    """
    described = plan.describe()
    if name == PLANS["replicated"]:
        described["servers"] = list(servers_of(plan))
    path = out / name
    if not resume:
        check_free(out)
        out.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(described | {"order_seed": plan.order_seed, "lives": 1}).encode())
        return plan, None, 0
    if not path.is_file():
        raise InputError(f"{out}: there is no discovery to go on with (no {name})")
    before = json.loads(path.read_text(encoding="utf-8"))
    order_seed, restart_index = before["order_seed"], before.get("lives", 1)
    for what, value in json.loads(json.dumps(described)).items():
        if before.get(what) != value:
            raise InputError(f"{out}: this discovery was started with another {what}; use a new folder")
    if seed is not None and order_seed != plan.order_seed:
        raise InputError(f"{out}: this discovery was started with another seed; use a new folder")
    stores = [Store(out, name) for name in (*plan.parties, VALIDATOR)]
    step = common_step(stores)
    for store in stores:
        store.forget_after(step or 0)
        if step is None:
            store.ledger.resume(0, 0)
    # Written before anybody starts: a start that fails at once is counted too.
    atomic_write(path, json.dumps(before | {"lives": restart_index + 1}).encode())
    return plan.with_order(order_seed), step, restart_index


def _lists(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array.tolist() for name, array in arrays.items()}
