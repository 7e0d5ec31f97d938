"""Runs of `crypto.moments` for tests: parties in threads, with rows made up, that may be killed and started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.crypto.moments import BlockEngine, Blocks, MomentParty, MomentPlan, Moments, cut
from veracausa.crypto.randomness import InsecureSeededDraws, RandomSource, SecureDraws
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link
from veracausa.wire.threads import run_threads, thread_links

NAMES = ("ann", "bob", "cem", "dua")


def plan_of(widths: tuple[int, ...], rows: int, encryption: str = "none", **more: Any) -> MomentPlan:
    """The first party opens."""
    names = NAMES[: len(widths)]
    more = {"allow_small_n": True, "block_rows": 256, **more}
    return MomentPlan(names, dict(zip(names, widths, strict=True)), rows, names[0], encryption, **more)  # type: ignore[arg-type]


def rows_of(plan: MomentPlan, seed: int = 0, spread: float = 1.0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    most = plan.limit
    return {
        party: np.clip(spread * rng.normal(size=(plan.rows, width)), -most, most)
        for party, width in plan.widths.items()
    }


class Killed(Exception):
    """What a party dies of here."""


class Run:
    """A release in threads that can be started again with what every party has saved."""

    def __init__(self, plan: MomentPlan, rows: Mapping[str, Array | Blocks], seed: int | None = None) -> None:
        self.plan, self.rows, self.seed = plan, rows, seed
        self.states: dict[str, Any] = dict.fromkeys(plan.parties)
        self.saves = 0
        self.messages = 0
        self.sent: list[tuple[str, str, str, bytes]] = []
        """Sender, receiver, kind and bytes of everything that crossed, where `watch` is set."""
        self.watch = True
        self.shares: dict[str, list[float]] = {party: [] for party in plan.parties}

    def draws(self, party: str) -> RandomSource:
        return SecureDraws() if self.seed is None else InsecureSeededDraws(self.seed, party)

    def start(
        self,
        kill_save: int | None = None,
        kill_message: int | None = None,
        engine: BlockEngine | None = None,
        timeout: float = 30.0,
        change: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]] | None = None,
        plans: Mapping[str, MomentPlan] | None = None,
        ledgers: Mapping[str, Ledger] | None = None,
    ) -> Moments | None:
        """Whatever the receiver has in the end; the n-th save or message kills whoever makes it."""
        self.saves = self.messages = 0
        found: dict[str, Moments | None] = {}

        def program(party: str) -> Callable[[Link], None]:
            def save(state: Mapping[str, Any]) -> None:
                self.saves += 1
                if self.saves == kill_save:
                    raise Killed
                self.states[party] = dict(state)

            def run(link: Link) -> None:
                deliver = link._deliver

                def watched(message: Any, layout: Any) -> None:
                    self.messages += 1
                    if self.messages == kill_message:
                        raise Killed
                    if self.watch:
                        raw = b"".join(t.numpy().tobytes() for t in message.tensors.values())
                        self.sent.append((message.sender, message.receiver, message.kind, raw))
                    if change is not None:
                        changed = change(message.sender, message.kind, message.tensors)
                        message = type(message)(
                            message.sender, message.receiver, message.kind, message.step, changed, message.meta
                        )
                    deliver(message, layout)

                link._deliver = watched  # type: ignore[method-assign]
                plan = (plans or {}).get(party, self.plan)
                rows = self.rows[party]
                blocks = rows if callable(rows) else cut(rows, plan.block_rows)
                made = MomentParty(plan, party, blocks, self.draws(party), self.states[party], save, engine=engine)
                found[party] = made.run(link, self.shares[party].append)

            return run

        links = thread_links(self.plan.parties, timeout, ledgers)
        run_threads({party: program(party) for party in self.plan.parties}, links)
        assert all(found[party] is None for party in self.plan.parties if party != self.plan.receiver)
        return found[self.plan.receiver]
