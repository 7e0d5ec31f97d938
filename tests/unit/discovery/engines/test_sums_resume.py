"""A discovery from sums that is killed anywhere goes on to the same integers and the same release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sums_runs import COLUMNS, ORDER, Killed, opened, sums_members, sums_plan, table
from veracausa.discovery.engines.sums.launch import run_sums
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.moments.search import Known
from veracausa.errors import InputError, RunError
from veracausa.runs.store import Store, common_step
from veracausa.wire.ledger import read_ledger, releases

VALUES = table()
FRAME = np.concatenate(list(VALUES.values()), axis=1)
POSITIONS = {party: [ORDER.index(name) for name in own] for party, own in COLUMNS.items()}


def at_kind(kind: str, number: int = 1) -> Callable[[Any], bool]:
    """Whoever sends the n-th message of this kind dies."""
    seen = 0

    def kill(message: Any) -> bool:
        nonlocal seen
        seen += message.kind == kind
        return seen == number and message.kind == kind

    return kill


def again(plan: Any, out: Path, **more: Any) -> dict[str, Any]:
    step = common_step([Store(out, member) for member in plan.members])
    for member in plan.members:
        Store(out, member).forget_after(step or 0)
    return sums_members(plan, VALUES, out=out, start=step, **more)


PHASES = [
    ("sums_hello", 2),
    ("sums_layout", 3),
    ("moment_query", 2),
    ("moment_share", 1),
    ("moment_share", 3),
    ("sums_found", 1),
    ("sums_found", 3),
]


@pytest.mark.parametrize(("kind", "number"), PHASES)
def test_killed_at_any_message_it_ends_in_the_same_noise(tmp_path: Path, kind: str, number: int) -> None:
    """Noise is drawn by the system, so that two releases would differ."""
    plan = sums_plan(epsilon=4.0, functions=2)
    with pytest.raises(Killed):
        sums_members(plan, VALUES, out=tmp_path, seed=None, kill=at_kind(kind, number))
    kept = {party: sorted((tmp_path / "parties" / party).glob("sums-*")) for party in plan.members}
    before = {party: _release(files) for party, files in kept.items()}
    members = again(plan, tmp_path, seed=None)
    for party in plan.members:
        if before[party] is not None:
            files = sorted((tmp_path / "parties" / party).glob("sums-*"))
            assert _release(files) == before[party], "it is the release that was begun"
    if kind == "sums_found":
        whole = opened(members)[0].integers
        third = again(plan, tmp_path, seed=None)
        assert np.array_equal(opened(third)[0].integers, whole)


def _release(files: list[Path]) -> tuple[str, bytes] | None:
    from veracausa.runs.store import StateFile

    if not files:
        return None
    state = StateFile(files[0]).load()
    assert state is not None
    noise = b"" if state["noise"] is None else state["noise"].numpy().tobytes()
    return state["release"], noise


def test_releases_that_are_over_are_not_made_again(tmp_path: Path) -> None:
    plan = sums_plan(bootstrap=2, resampling="rows", functions=1)
    whole = opened(sums_members(plan, VALUES))
    with pytest.raises(Killed):
        sums_members(plan, VALUES, out=tmp_path, kill=at_kind("moment_share", 5))
    sent: list[str] = []

    def watch(message: Any) -> bool:
        sent.append(message.kind)
        return False

    found = opened(again(plan, tmp_path, kill=watch))
    assert sent.count("moment_share") <= 2 * len(COLUMNS), "the first release was over"
    for one, other in zip(whole, found, strict=True):
        assert np.array_equal(one.integers, other.integers)


def test_without_a_validator_a_killed_party_hears_the_sums_again(tmp_path: Path) -> None:
    plan = sums_plan(receiver="all", functions=1)
    whole = opened(sums_members(plan, VALUES))[0]
    with pytest.raises(Killed):
        sums_members(plan, VALUES, out=tmp_path, kill=at_kind("sums_opened", 2))
    members = again(plan, tmp_path)
    for member in members.values():
        assert np.array_equal(member.opened[0].integers, whole.integers)


def test_a_killed_fit_goes_on(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(event: Any) -> None:
        if event.get("what") == "search":
            raise Stopped

    settings = {"encryption": "none", "starts": 1}
    whole = MomentSearch(**settings).fit(FRAME, parties=POSITIONS)
    with pytest.raises(RunError, match="Stopped"):
        MomentSearch(**settings).fit(FRAME, parties=POSITIONS, out=tmp_path, observer=stop)
    found = MomentSearch(**settings).fit(FRAME, parties=POSITIONS, out=tmp_path, resume=True)
    assert np.array_equal(found.strengths_, whole.strengths_)
    assert len(releases(read_ledger(tmp_path / "parties" / "ann" / "ledger.jsonl"), "")) == 1


def test_a_folder_of_another_discovery_is_refused(tmp_path: Path) -> None:
    MomentSearch(encryption="none", starts=1).fit(FRAME, parties=POSITIONS, out=tmp_path)
    with pytest.raises(InputError, match=r"settings\.penalty"):
        MomentSearch(encryption="none", starts=1, penalty=2).fit(FRAME, parties=POSITIONS, out=tmp_path, resume=True)
    with pytest.raises(InputError):
        MomentSearch(encryption="none", starts=1).fit(FRAME, parties=POSITIONS, out=tmp_path)


def test_a_start_that_was_killed_at_once_begins_anew(tmp_path: Path) -> None:
    plan = sums_plan(functions=1)
    result = run_sums(plan, VALUES, {}, Known.nothing(plan.d), seed=1, out=tmp_path / "new", resume=True)
    assert result.found is not None
