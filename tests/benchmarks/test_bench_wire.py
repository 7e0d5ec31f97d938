"""What `bench wire` sets beside what, and that all of it can be measured."""

from __future__ import annotations

import pytest
from refusals import Names

from benchmarks import wire, wire_flare
from benchmarks.wire_flare import Comparison, build_rows, comparisons
from benchmarks.wire_stations import LARGE, SMALL, Task
from veracausa.errors import InputError


def test_of_each_round_the_median_counts_and_of_the_rounds_the_median() -> None:
    every = {"ours": [[1.0, 2.0, 9.0], [3.0, 4.0, 5.0], [8.0, 8.0, 8.0]], "theirs": [[2.0], [2.0], [5.0]]}
    (row,) = build_rows("16 MiB", Task(False, 3), every, [Comparison("ours", "theirs")])
    assert (row.case, row.against) == ("ours 16 MiB", "theirs")
    assert (row.seconds, row.against_seconds, row.ratio) == (4.0, 2.0, 2.0)
    assert row.extra["quiet_ratio"] == 1.0
    assert row.extra["p50_ms"] == 5000.0
    assert row.extra["p99_ms"] == 9000.0
    assert row.extra["mib_per_second"] == pytest.approx(LARGE / 2**20 / 4.0)


def test_a_round_trip_crosses_twice() -> None:
    (row,) = build_rows("round trip", Task(True, 1), {"a": [[0.5]], "b": [[1.0]]}, [Comparison("a", "b")])
    assert row.extra["mib_per_second"] == pytest.approx(2 * SMALL / 2**20 / 0.5)


def test_what_was_not_measured_has_no_row() -> None:
    assert build_rows("16 MiB", Task(False, 1), {"a": [[1.0]]}, [Comparison("a", "b"), Comparison("b", "a")]) == []


@pytest.mark.parametrize("scheme", wire_flare.SCHEMES)
def test_our_layer_stands_beside_the_engine_below_it_and_beside_grpc(scheme: str) -> None:
    pairs = {(pair.way, pair.against) for pair in comparisons(scheme)}
    assert (f"flare {scheme} one hop", f"raw CoreCell {scheme}") in pairs
    assert (f"flare {scheme} direct", "raw gRPC mTLS") in pairs
    assert (f"flare {scheme} relayed sealed", f"raw CoreCell {scheme} relayed readable") in pairs


def test_a_link_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, check=Names("--link carrier-pigeon")):
        wire.run(1, ["carrier-pigeon"])


@pytest.mark.federation
@pytest.mark.parametrize("scheme", wire_flare.SCHEMES)
def test_every_way_is_measured(scheme: str) -> None:
    rows = wire_flare.run(1, [scheme], trips=3, loads=1)
    wanted = {(pair.way, pair.against) for pair in comparisons(scheme)}
    for name in ("round trip 256 KiB", "16 MiB"):
        got = {(row.case.removesuffix(f" {name}"), row.against) for row in rows if row.case.endswith(name)}
        assert got == wanted
    assert all(row.seconds > 0 and row.against_seconds > 0 for row in rows)
