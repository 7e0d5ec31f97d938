"""Discoveries from sums for tests: a made-up table of parties, and members in threads that may be killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto.moments import Moments
from veracausa.discovery.engines.sums.features import own_features
from veracausa.discovery.engines.sums.party import SumsMember
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.methods.moments.expansion import column_kinds
from veracausa.discovery.methods.moments.search import Known
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.runs.store import Store
from veracausa.wire.link import Link
from veracausa.wire.threads import run_threads, thread_links

COLUMNS = {"ann": ("a", "b"), "bob": ("c", "d"), "cem": ("e",)}
ORDER = [name for own in COLUMNS.values() for name in own]
TRUTH = (("a", "c"), ("b", "c"), ("c", "d"), ("d", "e"))
"""A collider first, so that every direction is told."""


class Killed(Exception):
    """What a member dies of here."""


def table(rows: int = 600, seed: int = 0) -> dict[str, Array]:
    """By party: five columns on straight lines, of which three parties hold two, two and one."""
    noise = dict(zip(ORDER, np.random.default_rng(seed).normal(size=(5, rows)), strict=True))
    for cause, effect in TRUTH:
        noise[effect] = noise[effect] + 0.9 * noise[cause]
    return {party: np.column_stack([noise[name] for name in own]) for party, own in COLUMNS.items()}


def sums_plan(rows: int = 600, columns: Mapping[str, tuple[str, ...]] = COLUMNS, **settings: Any) -> SumsPlan:
    settings = {"encryption": "none", "starts": 1, **settings}
    return SumsPlan(SumsSettings(**settings), columns, rows, seed=3)


def sums_members(
    plan: SumsPlan,
    values: Mapping[str, Array],
    *,
    seed: int | None = 5,
    out: Path | None = None,
    start: int | None = None,
    kill: Callable[[Any], bool] = lambda message: False,
    known: Known | None = None,
    **more: Any,
) -> dict[str, SumsMember]:
    """All members after their runs; whoever sends a message that `kill` names dies before it leaves."""
    members: dict[str, SumsMember] = {}

    def program(name: str) -> Callable[[Link], None]:
        def run(link: Link) -> None:
            deliver = link._deliver

            def watched(message: Any, layout: Any) -> None:
                if kill(message):
                    raise Killed
                deliver(message, layout)

            link._deliver = watched  # type: ignore[method-assign]
            store = None
            if out is not None:
                store = Store(out, name)
                store.start_step = start
                link.ledger = store.ledger
            own = values.get(name)
            make = None if own is None else lambda: own_features(plan, name, own, column_kinds(own, plan.columns[name]))
            members[name] = SumsMember(plan, name, known or Known.nothing(plan.d), make, seed, **more)
            try:
                members[name].run(link, store)
            finally:
                link.ledger.flush()

        return run

    run_threads({name: program(name) for name in plan.members}, thread_links(plan.members, 30.0))
    return members


def opened(members: Mapping[str, SumsMember]) -> list[Moments]:
    """What the validator opened, or the first party."""
    return members.get("validator", next(iter(members.values()))).opened
