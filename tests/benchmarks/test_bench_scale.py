"""The costs of a block: every part of the work is there, in seconds that were measured."""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks.scale import BlockCase, run


def test_every_part_of_a_block_is_timed() -> None:
    rows = run(BlockCase(columns=2, block_rows=1024, total=4096, blocks=2), repeats=1)
    names = [row.case for row in rows]
    assert names[:6] == [
        "read, parquet",
        "fit preprocessing, parquet",
        "read, csv",
        "fit preprocessing, csv",
        "fit splines",
        "map by splines",
    ]
    assert any(name.endswith("twin") for name in names)
    assert any(name.endswith("multiplying") for name in names) == bool(find_spec("seal"))
    assert all(row.seconds > 0 for row in rows)
