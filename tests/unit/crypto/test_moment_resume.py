"""Killed anywhere and started again, a release opens the same numbers, with the same noise and new masks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from moment_runs import Killed, Run, plan_of, rows_of
from veracausa.crypto.moments import InPlaceEngine, MomentPlan, cut, moments_of
from veracausa.crypto.moments.party import opened
from veracausa.crypto.ring import reduce
from veracausa.errors import PeerLost, RunError, WireError


def finished(run: Run) -> np.ndarray:
    moments = run.start()
    assert moments is not None
    return moments.integers


def noise_of(run: Run, plan: MomentPlan) -> np.ndarray:
    """All noise that parties have kept, where it belongs in the matrix of sums."""
    released = {}
    for party in plan.parties:
        width = plan.widths[party]
        own = width * (width + 1) // 2
        shares = sum(plan.widths[a] * plan.widths[b] for a, b in plan.pairs if party in (a, b))
        kept = run.states[party]["noise"]
        noise = np.zeros(own + shares, dtype=np.int64) if kept is None else reduce(kept.numpy())
        released[party] = noise[:own], noise[own:]
    return opened(plan, released)


def killed_everywhere(plan: MomentPlan, by: str, at: range) -> None:
    rows = rows_of(plan)
    exact = moments_of({party: cut(rows[party], plan.block_rows) for party in plan.parties}, plan).integers
    for number in at:
        run = Run(plan, rows)
        with pytest.raises((Killed, PeerLost)):
            run.start(**{by: number})  # type: ignore[arg-type]
        before = {party: state and state["noise"] for party, state in run.states.items()}
        assert np.array_equal(finished(run), exact + noise_of(run, plan)), number
        for party, noise in before.items():
            assert noise is None or np.array_equal(noise, run.states[party]["noise"])
        sent = [raw for _, _, kind, raw in run.sent if kind in ("moment_query", "moment_answer")]
        if plan.encryption == "bfv":
            assert len(set(sent)) == len(sent)


def counted(plan: MomentPlan) -> tuple[int, int]:
    run = Run(plan, rows_of(plan))
    finished(run)
    return run.saves, run.messages


def test_killed_at_every_save() -> None:
    plan = plan_of((2, 3, 2), 300, epsilon=1.0, clip=2.0)
    saves, _ = counted(plan)
    assert saves == 3 + 2 * 3 + 1  # noise, each end of each pair, and the receiver's sums
    killed_everywhere(plan, "kill_save", range(1, saves + 1))


def test_killed_at_every_message() -> None:
    plan = plan_of((2, 3), 600, epsilon=1.0, clip=2.0)
    _, messages = counted(plan)
    assert messages > 20
    killed_everywhere(plan, "kill_message", range(1, messages + 1))


def test_killed_with_encryption() -> None:
    pytest.importorskip("seal")
    plan = plan_of((2, 3), 300, "bfv", epsilon=1.0, clip=2.0)
    saves, messages = counted(plan)
    killed_everywhere(plan, "kill_save", range(1, saves + 1, 2))
    killed_everywhere(plan, "kill_message", range(9, messages + 1, 5))


def test_a_release_that_was_sent_is_sent_again_bit_for_bit() -> None:
    """The receiver dies when it has all sums and saves them. Pairs were kept, so not even shares change."""
    plan = plan_of((2, 3, 2), 300, epsilon=1.0, clip=2.0)
    saves, _ = counted(plan)
    run = Run(plan, rows_of(plan))
    with pytest.raises(Killed):
        run.start(kill_save=saves)
    finished(run)
    sent = [(sender, raw) for sender, _, kind, raw in run.sent if kind == "moment_share"]
    assert len(sent) == 4
    assert len(set(sent)) == 2
    assert sum(kind == "moment_query" for _, _, kind, _ in run.sent) == sum(
        plan.packing(*pair).packet_count for pair in plan.pairs
    )


def test_what_is_over_is_not_sent_again() -> None:
    plan = plan_of((2, 3), 300)
    run = Run(plan, rows_of(plan))
    first = finished(run)
    run.sent.clear()
    assert np.array_equal(finished(run), first)
    assert {kind for _, _, kind, _ in run.sent} == {"toss", "toss shown", "key", "agreed", "moment_hello"}


@pytest.mark.parametrize("seed", [None, 7])
def test_no_mask_comes_back(seed: int | None) -> None:
    """A pair that only one end has kept is made again: with other shares, even where masks follow from a seed."""
    plan = plan_of((4, 5), 300)
    run = Run(plan, rows_of(plan), seed)
    finished(run)
    shares = kept_shares(run)
    run.states["ann"] = None  # lost with its disk
    finished(run)
    numbers = np.concatenate(shares + kept_shares(run))
    assert len(np.unique(numbers)) == numbers.size


def kept_shares(run: Run) -> list[np.ndarray]:
    pairs = permutations(run.plan.parties)
    return [run.states[one]["shares"][other]["share"].numpy().reshape(-1) for one, other in pairs]


def test_features_that_change_between_passes() -> None:
    plan = plan_of((2, 2, 2), 300)
    rows: dict[str, Any] = dict(rows_of(plan))
    calls = iter(range(100))
    rows["cem"] = lambda: iter([np.full((size, 2), float(next(calls))) % 5 for size in plan.blocks])
    with pytest.raises(RunError, match="changed between two passes"):
        Run(plan, rows).start()


def test_a_state_of_another_plan() -> None:
    plan, other = plan_of((2, 3), 300), plan_of((2, 3), 300, value_bits=9)
    run = Run(plan, rows_of(plan))
    finished(run)
    moved = Run(other, rows_of(other))
    moved.states = run.states
    with pytest.raises(RunError, match="another plan"):
        moved.start()


def test_a_key_that_was_used_before() -> None:
    pytest.importorskip("seal")
    plan = plan_of((2, 2), 100, "bfv")
    run = Run(plan, rows_of(plan))
    keys: dict[str, Any] = {}

    def first_key(sender: str, kind: str, tensors: Any) -> Any:
        return (
            {"key": keys.setdefault(sender, tensors["key"].clone())} if kind == "key" and sender == "bob" else tensors
        )

    run.start(change=first_key)
    run.states["ann"] = {**run.states["ann"], "moments": None}
    with pytest.raises(WireError, match="used before"):
        run.start(change=first_key)


class SlowEngine(InPlaceEngine):
    """Takes its time for every task."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        for task in tasks:
            time.sleep(self.seconds)
            yield function(task)


def test_who_waits_for_a_busy_party_hears_that_it_lives() -> None:
    """Every pair takes longer than the time-out, and there are pairs whose parties wait for two others."""
    plan = plan_of((2, 2, 2, 2), 128 * 8, block_rows=128)
    assert all(plan.packing(*pair).packet_count == 8 for pair in plan.pairs)
    run = Run(plan, rows_of(plan))
    assert run.start(timeout=0.8, engine=SlowEngine(0.15)) is not None
    assert [kind for _, _, kind, _ in run.sent].count("moment_turn") > 2 * len(plan.pairs) + 3


def test_a_party_that_hangs_is_noticed() -> None:
    plan = plan_of((2, 2, 2), 128 * 3, block_rows=128)
    with pytest.raises(PeerLost, match="silent"):
        Run(plan, rows_of(plan)).start(timeout=0.5, engine=SlowEngine(1.5))
