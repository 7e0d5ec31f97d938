"""The strong mode watched: of a row nothing is opened, of a batch one number an attribute, and that is attacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks.columns.base import ColumnGrant, View
from veracausa.audit.discovery.recorder import MOMENTS
from veracausa.audit.discovery.views import DiscoveryViews
from veracausa.crypto.ring64.fixed64 import Words
from veracausa.data.causal import CausalData
from veracausa.discovery.engines.launch import StrongProgram
from veracausa.discovery.engines.mpc.network import Targets
from veracausa.discovery.engines.mpc.party import StrongParty
from veracausa.discovery.engines.mpc.schedule import strong_plan
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.events import Observer
from veracausa.seeding import derive
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

ATTACKS = ("unsplit", "ica", "known_rows", "averaging", "stacking")
"""Those that can be tried on a batch's sums as if they were features of its rows."""


class WatchedTargets:
    """A party's own noise, whose sums somebody writes down."""

    def __init__(self, targets: Targets, seen: list[Array]) -> None:
        self._targets, self._seen = targets, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._targets, name)

    def learn(self, sums: Words) -> Words:
        self._seen.append(sums.view(np.int64).astype(np.float64).ravel())
        return self._targets.learn(sums)


@dataclass
class WatchedProgram(StrongProgram):
    """One party of the strong mode, watched."""

    seen: list[Array] = field(default_factory=list)
    """For every step, the sums (own,) that were opened to the party."""

    def __call__(self, link: Link, notify: Observer) -> None:
        if self.values is None:
            super().__call__(link, notify)
            return
        party = StrongParty(self.plan, self.name, self.values, self.allowed, link, self.seed)
        party.targets = WatchedTargets(party.targets, self.seen)  # type: ignore[assignment]
        party.run()


def prepared_columns(
    method: VFedCD, data: CausalData, parties: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Array], list[str], int]:
    """Each party's columns as a fit prepares them, their names party by party, and how many rows train."""
    none = np.zeros((len(data.names),) * 2, dtype=bool)
    rows, _, _ = method._prepared(method.settings(), data.values, data.names, none, none)
    table = np.concatenate([rows.train, rows.held_out])
    at = {party: [rows.names.index(name) for name in own if name in rows.names] for party, own in parties.items()}
    names = [rows.names[position] for positions in at.values() for position in positions]
    return {party: table[:, positions] for party, positions in at.items() if positions}, names, len(rows.train)


def train_strong(
    columns: Mapping[str, Array], names: Sequence[str], settings: Settings, train_rows: int, seed: int
) -> dict[str, WatchedProgram]:
    """Fit with every party a program and the validator as dealer; gives the programs with what they saw."""
    plan = strong_plan(columns, names, settings, train_rows, seed)
    allowed, required = ~np.eye(plan.d, dtype=bool), np.zeros((plan.d, plan.d), dtype=bool)
    programs = {name: WatchedProgram(plan, name, values, allowed, required, seed) for name, values in columns.items()}
    dealer = StrongProgram(plan, VALIDATOR, None, allowed, required, seed)
    Launch("threads", 600.0, cpu_threads=dict.fromkeys((*programs, VALIDATOR), 1)).run(
        {**programs, VALIDATOR: dealer}, lambda event: None
    )
    return programs


def strong_scenes(programs: Mapping[str, WatchedProgram], known_rows: int, seed: int) -> list[DiscoveryViews]:
    """Every party against all others: each row has the numbers of its batch."""
    return [_scene(programs, name, known_rows, seed) for name in programs]


def _scene(programs: Mapping[str, WatchedProgram], name: str, known_rows: int, seed: int) -> DiscoveryViews:
    plan = programs[name].plan
    victims = plan.peers(name)
    rows = np.concatenate(plan.batches)
    truth = np.concatenate([_values(programs[victim])[rows] for victim in victims], axis=1)
    epochs = _by_epoch(plan, programs[name].seen)
    moments = np.unique(np.linspace(0, len(epochs) - 1, MOMENTS).round().astype(int))
    rng = np.random.default_rng(derive(seed, "discovery audit", "strong", name))
    known = np.sort(rng.choice(len(rows), min(known_rows, len(rows)), replace=False))
    view = View(
        grants=ColumnGrant.KNOWN_ROWS,
        columns=truth.shape[1],
        own=_values(programs[name])[rows],
        last=epochs[-1][..., None],
        mean=epochs[len(epochs) // 2 :].mean(0)[..., None],
        history=epochs[moments],
        rng=rng,
        known=(known, truth[known]),
    )
    kept_apart = np.concatenate([_values(programs[victim])[plan.train_rows :] for victim in victims], axis=1)
    return DiscoveryViews((name,), victims, view, truth, kept_apart)


def _by_epoch(plan: Plan, seen: Sequence[Array]) -> Array:
    """(epochs, rows, own): the sums of each row's batch."""
    steps = len(plan.batches)
    epochs = np.zeros((len(seen) // steps, steps, len(seen[0])))
    for epoch in range(len(epochs)):
        for number, (batch, _) in enumerate(plan.order(epoch)):
            epochs[epoch, batch] = seen[epoch * steps + number]
    return np.repeat(epochs, len(plan.batches[0]), axis=1)


def _values(program: WatchedProgram) -> Array:
    assert program.values is not None
    return program.values
