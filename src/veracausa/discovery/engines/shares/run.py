"""One federated discovery with all parties here: from every party's columns to the strengths of all edges."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point
from veracausa.crypto.backends import encryption_class
from veracausa.discovery.engines.centralized import Fit
from veracausa.discovery.engines.shares.offline_phase import PhaseLedger
from veracausa.discovery.engines.shares.party import AttributeParty
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, Preparing, Sharing, ValidatorMode
from veracausa.discovery.engines.shares.validator import Validator
from veracausa.discovery.graphs import constraints
from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.check import stated
from veracausa.discovery.privacy.options import Output, Privacy
from veracausa.discovery.privacy.party import PrivateParty
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.events import Observer
from veracausa.runs.atomic import atomic_write
from veracausa.runs.folder import check_free, locked
from veracausa.runs.store import Store, common_step
from veracausa.seeding import derive
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

PATIENCE = 120.0
PATIENCE_ENCRYPTING = 3600.0
Watch = Callable[[AttributeParty], None]
"""Is shown every party before it runs, and may put itself between the party and its holder; with threads only."""


@dataclass
class FederatedFit:
    """What the validator says at the end, and what every party sent on the way. Attributes as `names` orders them."""

    names: tuple[str, ...]
    parties: dict[str, tuple[str, ...]]
    """Each party's attributes."""
    strengths: Array
    allowed: Mask
    """The edges that the order leaves, or all that were not forbidden where there was no refit."""
    threshold: float
    held_out_loss: float
    history: list[dict[str, float]] = field(default_factory=list)
    sent: dict[str, dict[str, int]] = field(default_factory=dict)
    """Bytes and messages of every party, the validator among them; of these, what was sent ahead of the steps."""
    told: dict[str, Array] = field(default_factory=dict)
    """(d, d): the strengths of the edges that each party was told of, 0 for no edge and nan for nothing said."""
    noise: dict[str, object] | None = None
    """What was added, and what that guarantees or not; None: no noise."""
    search: int = 0
    """Which of the searches was kept."""
    figures: Array | None = None
    """(d, 4): what each party's rows kept apart say of its attributes, see `diagnostics`; None: nobody could say."""

    @classmethod
    def of(cls, plan: Plan, found: Fit) -> FederatedFit:
        """A validator's word on a plan."""
        return cls(
            plan.names,
            {party: plan.names[plan.own(party)] for party in plan.parties},
            found.strengths[0],
            found.allowed[0],
            float(found.thresholds[0]),
            float(found.held_out_loss[0]),
            found.history,
            search=int(found.search[0]),
        )


@dataclass
class ShareProgram:
    """One party, ready to be started in a thread or a process; only its own columns travel with it."""

    plan: Plan
    name: str
    values: Array | None
    """None: the validator."""
    binary: Mask | None
    allowed: Mask
    required: Mask
    seed: int | None
    out: Path | None = None
    start: int | None = None
    life: int = 0
    """How often this discovery was started before."""
    watch: Watch | None = None

    def __call__(self, link: Link, notify: Observer) -> None:
        try:
            self._run(link, notify)
        except (VeracausaError, OSError):
            raise
        except Exception as error:  # the reader must know whose
            raise RunError(f"party {self.name!r} failed: {type(error).__name__}: {error}") from error

    def _run(self, link: Link, notify: Observer) -> None:
        store, ledger = None, PhaseLedger()
        if self.out is not None:
            store = Store(self.out, self.name)
            store.start_step = self.start
            store.announce_to(link)
            store.ledger = ledger = PhaseLedger(store.ledger.path)
        link.ledger = ledger
        if self.values is None or self.binary is None:
            validator = Validator(self.plan, self.allowed, self.required, notify, self.life, self.seed)
            validator.run(link, store)
            assert validator.found is not None
            arrays = {name: array.tolist() for name, array in validator.found.arrays.items()}
            notify({"event": "result", "found": arrays, "history": validator.history})
        else:
            given = self.plan, self.name, self.values, self.binary, self.allowed, self.seed, self.life
            party = (AttributeParty if self.plan.privacy is None else PrivateParty)(*given)
            if self.watch is not None:
                self.watch(party)
            party.run(link, store)
            told = {"graph": party.told.tolist(), "figures": party.figures.tolist()}
            notify({"event": "told", "party": self.name, **told})
        ledger.flush()
        notify({"event": "finished", "party": self.name, "sent": ledger.told()})


def discover(
    columns: Mapping[str, Array],
    names: Sequence[str],
    settings: Settings,
    *,
    binary: Mask | None = None,
    required: Mask | None = None,
    forbidden: Mask | None = None,
    train_rows: int | None = None,
    seed: int | None = None,
    link: Literal["threads", "processes"] = "threads",
    encryption: str = "none",
    validator: ValidatorMode = "M2",
    local_steps: int = 1,
    shares: Sharing = "two",
    prepare: Preparing = "inline",
    privacy: Privacy | None = None,
    laplace: LaplaceHeuristic | None = None,
    output: Output = "all",
    timeout: float | None = None,
    checkpoint_every: int = 10,
    out: Path | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
    watch: Watch | None = None,
) -> FederatedFit:
    """Learn the strengths of all edges between the parties' attributes, with every party a program of its own.

    `columns` holds each party's (n, d_k) prepared values, the same rows in the same order; attributes are numbered
    party by party, and `names`, `binary`, `required` and `forbidden` follow that order. The first `train_rows`
    train (by default all but the settings' share), the others choose the threshold. A seed makes a simulation
    repeatable, and its masks known to who has the seed; without one they come from the system. With `out`, the parties
    leave checkpoints there, and `resume` goes on from them. A party that says nothing for `timeout` seconds is lost;
    by default these are many where it may be encrypting all that time.
    """
    if timeout is None:
        timeout = PATIENCE if encryption == "none" else PATIENCE_ENCRYPTING
    how = {
        "encryption": encryption,
        "validator": validator,
        "local_steps": local_steps,
        "checkpoint_every": checkpoint_every,
        "shares": shares,
        "prepare": prepare,
        "privacy": privacy,
        "laplace": laplace,
        "output": output,
    }
    plan = make_plan(columns, names, settings, train_rows, seed, how)
    must, never = constraints(plan.d, required, forbidden)
    allowed = ~np.eye(plan.d, dtype=bool) & ~never
    two_valued = np.zeros(plan.d, dtype=bool) if binary is None else np.asarray(binary, dtype=bool)
    for party, values in columns.items():
        fixed_point.encode_columns(values, plan.names[plan.own(party)])  # refuse before anybody is started
    start, life = None, 0
    if out is not None:
        plan, start, life = prepare_folder(out, plan, resume, seed)
    noise = stated(plan, life, seeded=seed is not None)
    if noise is not None:
        observer({"event": "noise", **noise})
    programs = {
        party: ShareProgram(
            plan, party, values, two_valued[plan.own(party)], allowed, must, seed, out, start, life, watch
        )
        for party, values in columns.items()
    }
    programs[VALIDATOR] = ShareProgram(plan, VALIDATOR, None, None, allowed, must, seed, out, start, life)
    result: dict[str, Any] = {}
    sent: dict[str, dict[str, int]] = {}
    told: dict[str, Array] = {}
    figures: dict[str, Array] = {}

    def hear(event: Mapping[str, Any]) -> None:
        if event["event"] == "result":
            result.update(event)
        elif event["event"] == "finished":
            sent[event["party"]] = event["sent"]
        elif event["event"] == "told":
            told[event["party"]] = np.array(event["graph"])
            figures[event["party"]] = np.array(event["figures"])
        else:
            observer(event)

    launch = Launch(link, timeout, cpu_threads=dict.fromkeys(programs, 1))
    if out is None:
        launch.run(programs, hear)
    else:
        with locked(out):
            launch.run(programs, hear)
    found = Fit(**{name: np.array(array) for name, array in result["found"].items()}, history=result["history"])
    fit = FederatedFit.of(plan, found)
    fit.sent = {name: sent[name] for name in programs}
    fit.told = {party: told[party] for party in plan.parties}
    fit.noise = noise
    fit.figures = np.concatenate([figures[party][fit.search] for party in plan.parties])
    return fit


def make_plan(
    columns: Mapping[str, Array],
    names: Sequence[str],
    settings: Settings,
    train_rows: int | None,
    seed: int | None,
    how: Mapping[str, Any],
) -> Plan:
    rows = {party: len(values) for party, values in columns.items()}
    if len(set(rows.values())) > 1:
        raise InputError(f"parties: they hold different numbers of rows ({rows}); align them first")
    sizes = tuple(values.shape[1] for values in columns.values())
    if sum(sizes) != len(names):
        raise InputError(f"names: {len(names)} for {sum(sizes)} columns; give one a column, party by party")
    if min(sizes, default=0) < 1:
        raise InputError(f"party {list(columns)[sizes.index(0)]!r} holds no column; leave it out")
    count = next(iter(rows.values()))
    if train_rows is None:
        train_rows = count - round(count * settings.held_out)
    encryption_class(how.get("encryption", "none"))
    # Public: all parties see it. In a real run it comes from the system, once.
    order_seed = secrets.randbits(63) if seed is None else derive(seed, "order")
    plan = Plan(settings, tuple(columns), sizes, tuple(names), count, train_rows, order_seed, **how)
    plan.check()
    return plan


def prepare_folder(
    out: Path, plan: Plan, resume: bool, seed: int | None, name: str = "plan.json"
) -> tuple[Plan, int | None, int]:
    """Write the plan down, or go on with the one that is there.

    With it come the step of the newest common checkpoint, and how often this discovery was started before.
    """
    described = plan.describe()
    path = out / name
    if not resume:
        check_free(out)
        out.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(described | {"order_seed": plan.order_seed, "lives": 1}).encode())
        return plan, None, 0
    if not path.is_file():
        raise InputError(f"{out}: there is no discovery to go on with (no {name})")
    before = json.loads(path.read_text(encoding="utf-8"))
    order_seed, life = before["order_seed"], before.get("lives", 1)
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
    # Written before anybody starts: a life that dies at once is counted too.
    atomic_write(path, json.dumps(before | {"lives": life + 1}).encode())
    return plan.with_order(order_seed), step, life
