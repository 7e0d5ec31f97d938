"""The benchmark of sums over rows measures what it says, on cases of a second."""

from __future__ import annotations

import pytest

pytest.importorskip("seal")

from benchmarks.moments import MomentCase, run


def test_a_whole_case_and_a_timed_share() -> None:
    whole, shared = run([MomentCase(3, 300), MomentCase(3, 17_000, queries=1)])
    assert whole.extra["share"] == 1
    assert 0.3 < shared.extra["share"] < 0.7  # one block of three
    assert shared.seconds == pytest.approx(
        sum(shared.extra[part] for part in ("encrypting", "multiplying", "replying"))
    )
    assert shared.extra["MB"] > shared.extra["its MB"]


def test_bytes_of_a_share_are_those_of_the_whole() -> None:
    whole, shared = run([MomentCase(4, 9000), MomentCase(4, 9000, queries=1)])
    # Keys, tosses and headers are not counted in a share.
    assert 0 < whole.extra["MB"] - shared.extra["MB"] < 1.7
