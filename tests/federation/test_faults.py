"""Members are killed and cut off at random moments; the weights are those of a run that nobody disturbed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from faults import fault_run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None, reason='needs nvflare: pip install "veracausa[federation]"'
)


def check(result: dict, kills: int, partitions: int) -> None:
    assert result["done"], result["logs"]
    assert (result["kills"], result["partitions"]) == (kills, partitions)
    assert result["same_weights"]


@pytest.mark.federation
def test_a_kill(tmp_path: Path) -> None:
    check(fault_run(tmp_path, 1, 0, "tcp", seed=0, epochs=2, limit=300.0, patience=8.0), 1, 0)


@pytest.mark.federation
def test_two_kills_and_a_partition(tmp_path: Path) -> None:
    check(fault_run(tmp_path, 2, 1, "tcp", seed=0, epochs=5, limit=300.0), 2, 1)


@pytest.mark.federation
@pytest.mark.parametrize("scheme", ["tcp", "grpc"])
def test_twenty_kills_and_two_partitions(tmp_path: Path, scheme: str) -> None:
    check(fault_run(tmp_path, 20, 2, scheme, seed=1, epochs=40, limit=1800.0), 20, 2)
