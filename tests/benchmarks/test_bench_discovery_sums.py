"""The benchmark of discoveries from sums measures what it says, on a case of a second."""

from __future__ import annotations

import pytest
from refusals import Names

from benchmarks import discovery_sums
from benchmarks.discovery_sums import SumsCase, run
from veracausa.errors import InputError


def test_seconds_and_bytes_of_a_small_case(monkeypatch: pytest.MonkeyPatch) -> None:
    case = SumsCase(4, 300, 2, 2, generator="linear", link="threads", encryption="none")
    monkeypatch.setattr(discovery_sums, "GROUPS", {"small": (case,)})
    (row,) = run(["small"])
    parts = sum(row.extra[part] for part in ("start", "sums", "search"))
    assert row.seconds == pytest.approx(parts)
    assert row.extra["MB"] == pytest.approx(row.extra["announced MB"], rel=0.3)
    with pytest.raises(InputError, check=Names("tiny", "small")):
        run(["tiny"])
