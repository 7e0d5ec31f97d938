"""Run the protocol as published: every party and the validator is a program, all of them on one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.engines.literal.numbers import numbers_of
from veracausa.discovery.engines.literal.party import MASK, LiteralParty
from veracausa.discovery.engines.literal.protocol import check_literal
from veracausa.discovery.engines.literal.validator import LiteralValidator
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan, make_plan
from veracausa.discovery.graphs import constraints
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.events import Event, Observer
from veracausa.runs.folder import check_free, locked
from veracausa.runs.store import Store
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

PATIENCE = 3600.0
"""Seconds: a party encrypts number by number."""


@dataclass
class LiteralProgram:
    """One party or the validator, ready to be started."""

    plan: Plan
    name: str
    values: Array | None
    allowed: Mask
    required: Mask
    seed: int | None
    binary: Mask | None = None
    out: Path | None = None
    mask: float = MASK
    fresh: bool = False
    watch: Any = None

    def __call__(self, link: Link, notify: Observer) -> None:
        try:
            self._run(link, notify)
        except (VeracausaError, OSError):
            raise
        except Exception as error:  # the reader must know whose
            raise RunError(f"party {self.name!r} failed: {type(error).__name__}: {error}") from error

    def _run(self, link: Link, notify: Observer) -> None:
        if self.out is not None:
            link.ledger = Store(self.out, self.name).ledger
        if self.values is None:
            validator = LiteralValidator(self.plan, self.allowed, self.required, notify, self.seed, mask=self.mask)
            validator.run(link)
            found = validator.fit()
            arrays = {name: array.tolist() for name, array in found.arrays.items()}
            notify({"event": "result", "found": arrays, "history": found.history})
        else:
            binary = np.zeros(self.values.shape[1], dtype=bool) if self.binary is None else self.binary
            numbers = numbers_of(self.plan.encryption, self.plan.settings.key_bits)
            given = self.plan, self.name, self.values, binary, self.allowed, numbers, self.seed
            party = LiteralParty(*given, mask=self.mask, fresh=self.fresh)
            if self.watch is not None:
                self.watch(party)
            party.run(link)
            notify({"event": "graph", "party": self.name, "graph": party.known.tolist(), "figures": []})
        link.ledger.flush()
        sent = {"bytes": link.ledger.bytes_sent, "messages": link.ledger.messages}
        notify({"event": "finished", "party": self.name, "sent": sent})


def run_literal(
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
    out: Path | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
    watch: Any = None,
    mask: float = MASK,
    fresh: bool = False,
) -> DiscoveryResult:
    """The arguments of `run_federation`, the deviation of the float masks, and whether every fragment is encrypted anew
    after every change. `watch` is shown each party before it runs, with threads only."""
    if resume:
        raise InputError("resume: the protocol 'literal' keeps no checkpoints; begin it anew, in a new folder")
    plan = make_plan(columns, names, settings, train_rows, seed)
    check_literal(plan)
    if start_graph is not None:
        raise InputError("start_graph: the protocol 'literal' begins with no graph; leave it out")
    two_valued = np.zeros(plan.d, dtype=bool) if binary is None else np.asarray(binary, dtype=bool)
    must, never = constraints(plan.d, required, forbidden)
    allowed = ~np.eye(plan.d, dtype=bool) & ~never
    if out is not None:
        check_free(out)
        out.mkdir(parents=True, exist_ok=True)
    more: dict[str, Any] = {"out": out, "mask": mask, "fresh": fresh}
    programs = {
        party: LiteralProgram(
            plan, party, values, allowed, must, seed, two_valued[plan.own(party)], watch=watch, **more
        )
        for party, values in columns.items()
    }
    programs[VALIDATOR] = LiteralProgram(plan, VALIDATOR, None, allowed, must, seed, **more)
    result = DiscoveryResult(plan.names)

    def hear(event: Event) -> None:
        if not result.hear(event):
            observer(event)

    with nullcontext() if out is None else locked(out):
        Launch(link, PATIENCE, cpu_threads=dict.fromkeys(programs, 1)).run(programs, hear)
    result.own_figures = {}
    result.sent = {name: result.sent[name] for name in programs}
    result.sent_to = {party: result.sent_to[party] for party in plan.parties if party in result.sent_to}
    return result
