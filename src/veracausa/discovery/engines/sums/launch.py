"""A discovery from sums with all members on this machine: in threads, or each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from veracausa.arrays import Array
from veracausa.atomic import atomic_write
from veracausa.discovery.engines.sums.party import known_as_lists
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.engines.sums.program import SumsProgram
from veracausa.discovery.methods.moments.expansion import ColumnKind
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.methods.moments.resampling import EdgeShares
from veracausa.discovery.methods.moments.search import Known
from veracausa.errors import InputError
from veracausa.events import Event, Observer
from veracausa.runs.folder import check_free, locked
from veracausa.runs.store import Store, common_step
from veracausa.wire.launch import Launch
from veracausa.wire.ledger import read_ledger, releases

PATIENCE = 600.0
"""Seconds that a party may say nothing: it is making features, or multiplying."""
PLAN = "sums.json"
"""What a resume must have the same."""


@dataclass
class SumsResult:
    """What all members left. Columns are in the plan's order."""

    found: SumsFound | None = None
    shares: EdgeShares | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    account: dict[str, float] | None = None
    """What the releases spent; None: the sums are exact."""
    sent: dict[str, dict[str, int]] = field(default_factory=dict)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By party: what it knows of the graph."""

    def hear(self, event: Event) -> bool:
        """Note what a member reports. False: it is about something else."""
        match event["event"]:
            case "notes":
                self.notes += event["notes"]
                self.warnings += event["warnings"]
            case "finished":
                self.sent[event["party"]] = event["sent"]
            case "found":
                self.told[event["party"]] = dict(event["found"])
                if event["opened"]:
                    self.found, self.shares = found_of(event["found"]), shares_of(event["found"])
                    self.account = None if event["account"] is None else dict(event["account"])
            case _:
                return False
        return True


def found_of(told: Mapping[str, Any]) -> SumsFound:
    """The graph of a `found` event. A member that was told a part of it has no edge elsewhere."""
    given = {name: np.array(part, dtype=np.float64) for name, part in told.items() if isinstance(part, list)}
    joined = np.nan_to_num(given["joined"])
    return SumsFound(
        np.nan_to_num(given["adjacency"]) > 0,
        np.nan_to_num(given["undirected"]) > 0,
        np.nan_to_num(given["strengths"]),
        given["slopes"],
        given["bends"],
        given["margins"],
        given["explained"],
        told["model"],
        tuple(int(at) for at in told.get("order", ())),
        dict(told.get("scores", {})),
        tuple((int(i), int(j), float(joined[i, j])) for i, j in np.argwhere(np.triu(joined, 1))),
        given.get("residual_variances", np.zeros(0)),
    )


def shares_of(told: Mapping[str, Any]) -> EdgeShares | None:
    """The shares of edges over resamples in a `found` event; None: there were none, or nothing of them was told."""
    directed, skeleton = (np.array(told[name], dtype=np.float64) for name in ("confidence", "skeleton_confidence"))
    return None if np.isnan(directed).all() else EdgeShares(np.nan_to_num(directed), np.nan_to_num(skeleton))


def run_sums(
    plan: SumsPlan,
    values: Mapping[str, Array],
    kinds: Mapping[str, Sequence[ColumnKind]],
    known: Known,
    *,
    seed: int | None = None,
    link: Literal["threads", "processes"] = "threads",
    timeout: float = PATIENCE,
    out: Path | None = None,
    resume: bool = False,
    observer: Observer = lambda event: None,
    time_limit: float | None = None,
) -> SumsResult:
    """The graph over the columns of all parties, each a program of its own.

    `values` and `kinds` hold each party's columns as the plan orders them. Masks and noise come from the system, or
    from `seed` in a simulation that is to repeat. With `out`, every member leaves its ledger and its checkpoints there,
    and `resume` goes on from them.
    """
    plan.check()
    start = None if out is None else _prepare_folder(out, plan, known, resume)
    programs = {
        member: SumsProgram(
            plan,
            member,
            values.get(member),
            kinds.get(member),
            known,
            seed,
            out,
            start,
            _earlier(out, member, plan),
            time_limit,
        )
        for member in plan.members
    }
    result = SumsResult()
    shares = dict.fromkeys(plan.parties, 0.0)

    def hear(event: Event) -> None:
        if event["event"] == "progress" and event["what"] == "sums":
            # As far as the party that is least far.
            if event["party"] in shares:
                shares[event["party"]] = event["share"]
                observer({"event": "progress", "what": "sums", "share": min(shares.values())})
        elif not result.hear(event):
            observer(event)

    launch = Launch(link, timeout, cpu_threads=dict.fromkeys(programs, 1))
    with nullcontext() if out is None else locked(out):
        launch.run(programs, hear)
    result.sent = {member: result.sent[member] for member in programs}
    return result


def _earlier(out: Path | None, member: str, plan: SumsPlan) -> dict[str, float]:
    """What the member's ledger says that it released of these rows before."""
    path = None if out is None else Store(out, member).ledger.path
    return {} if path is None or not path.is_file() else releases(read_ledger(path), plan.rows_digest)


def _prepare_folder(out: Path, plan: SumsPlan, known: Known, resume: bool) -> int | None:
    """The step of the newest common checkpoint; None: from the beginning."""
    described = json.loads(json.dumps(plan.described() | {"known": known_as_lists(known)}))
    path = out / PLAN
    if not resume or not path.is_file():  # one that was killed before its parties began
        check_free(out)
        out.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(described).encode())
        return None
    before = json.loads(path.read_text(encoding="utf-8"))
    for what, value in described.items():
        if before.get(what) != value:
            raise InputError(f"{out}: this discovery was started with another {what}; use a new folder")
    stores = [Store(out, member) for member in plan.members]
    step = common_step(stores)
    for store in stores:
        store.forget_after(step or 0)
    return step
