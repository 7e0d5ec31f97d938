"""One discovery in the strong mode with all parties here: from every party's columns to the strengths of all edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.crypto import fixed_point
from veracausa.discovery.engines.mpc.party import StrongParty
from veracausa.discovery.engines.mpc.schedule import row_sets
from veracausa.discovery.engines.mpc.validator import StrongValidator
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.engines.shares.run import FederatedFit, make_plan, prepare_folder
from veracausa.discovery.graphs import constraints
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import InputError
from veracausa.events import Event, Observer, event_of
from veracausa.runs.folder import locked
from veracausa.runs.store import Store
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

PLAN = "strong.json"
"""What a resume must have the same. Not the normal mode's file: neither goes on with the other's checkpoints."""
FEWEST = 8
"""Rows whose squared residuals are opened as one sum."""


@dataclass
class StrongProgram:
    """One party, ready to be started in a thread or a process; only its own columns travel with it."""

    plan: Plan
    name: str
    values: Array | None
    """None: the validator."""
    allowed: Mask
    required: Mask
    seed: int | None
    out: Path | None = None
    start: int | None = None
    life: int = 0
    """How often this discovery was started before."""

    def __call__(self, link: Link, notify: Observer) -> None:
        store = None
        if self.out is not None:
            store = Store(self.out, self.name)
            store.start_step = self.start
            store.announce_to(link)
            link.ledger = store.ledger
        if self.values is None:
            validator = StrongValidator(self.plan, self.allowed, self.required, link, self.seed, notify, self.life)
            validator.run(store)
            judge = validator.judge
            result = {
                "strengths": judge.strengths.tolist(),
                "allowed": judge.structure.allowed[0].tolist(),
                "threshold": judge.threshold,
                "held_out_loss": judge.held_out_loss,
                "history": judge.history,
            }
            notify(event_of("result", result))
        else:
            StrongParty(self.plan, self.name, self.values, self.allowed, link, self.seed, self.life).run(store)
        link.ledger.flush()
        size, count = link.ledger.bytes_sent, link.ledger.messages
        notify({"event": "finished", "party": self.name, "bytes": size, "messages": count})


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
    timeout: float = 120.0,
    checkpoint_every: int = 10,
    out: Path | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
) -> FederatedFit:
    """Learn the strengths of all edges with features, decoders and gradients on shares of all parties.

    Arguments as for the normal mode; `binary` attributes are refused, because a Bernoulli likelihood is not built on
    shares. The activation is the cubic, whatever the settings name. The validator deals: whoever it shares its secrets
    with can open everything. What is dealt is never kept: after a resume all of it is new, and with it how numbers are
    rounded.
    """
    plan = plan_of(columns, names, settings, train_rows, seed, checkpoint_every)
    if binary is not None and binary.any():
        first = names[int(np.argmax(binary))]
        raise InputError(
            f"column {first!r} has two values, and the strong mode has no Bernoulli likelihood; set bernoulli to false "
            "to fit it as a number"
        )
    must, never = constraints(plan.d, required, forbidden)
    allowed = ~np.eye(plan.d, dtype=bool) & ~never
    for party, values in columns.items():
        fixed_point.encode_columns(values, plan.names[plan.own(party)])  # refuse before anybody is started
    start, life = None, 0
    if out is not None:
        plan, start, life = prepare_folder(out, plan, resume, seed, PLAN)
    given = allowed, must, seed, out, start, life
    programs = {party: StrongProgram(plan, party, values, *given) for party, values in columns.items()}
    programs[VALIDATOR] = StrongProgram(plan, VALIDATOR, None, *given)
    result: dict[str, Any] = {}
    sent: dict[str, dict[str, int]] = {}

    def hear(event: Event) -> None:
        if event["event"] == "result":
            result.update(event)
        elif event["event"] == "finished":
            sent[event["party"]] = {"bytes": event["bytes"], "messages": event["messages"]}
        else:
            observer(event)

    launch = Launch(link, timeout, cpu_threads=dict.fromkeys(programs, 1))
    with nullcontext() if out is None else locked(out):
        launch.run(programs, hear)
    return FederatedFit(
        plan.names,
        {party: plan.names[plan.own(party)] for party in plan.parties},
        np.array(result["strengths"]),
        np.array(result["allowed"], dtype=bool),
        result["threshold"],
        result["held_out_loss"],
        result["history"],
        {name: sent[name] for name in programs},
    )


def plan_of(
    columns: Mapping[str, Array],
    names: Sequence[str],
    settings: Settings,
    train_rows: int | None,
    seed: int | None,
    checkpoint_every: int = 10,
) -> Plan:
    """What all parties know; settings that this mode has no place for are refused."""
    if settings.sparsity == "l2":
        raise InputError("sparsity = 'l2': decoders on shares do not decay; use 'group_lasso'")
    if settings.bottleneck is not None or settings.row_noise is not None:
        raise InputError("bottleneck and row_noise change what is opened of a row; here nothing is, so leave them out")
    if settings.likelihood in ("heteroscedastic", "auto"):
        raise InputError("likelihood: the strong mode has no heteroscedastic one; set likelihood to 'gaussian'")
    if len(settings.each) > 1:
        raise InputError("searches: the strong mode has one; set searches to []")
    plan = make_plan(columns, names, settings.each[0], train_rows, seed, {"checkpoint_every": checkpoint_every})
    fewest = min(len(rows) for rows in row_sets(plan))
    if fewest < FEWEST:
        raise InputError(f"batch: sums over {fewest} rows would be opened, which are nearly rows; at least {FEWEST}")
    return plan
