"""Which rows of a streamed file train, validate and test: as in memory up to some size, and beyond it by chunks."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.data import row_draw
from veracausa.data.options import DataOptions
from veracausa.data.row_draw import LEFT_OUT, RowDraw
from veracausa.data.split_tables import draw_splits
from veracausa.data.vertical import SPLITS


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(row_draw, "CHUNK", 100)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("train", "test"), [(None, None), (300, 20)])
@pytest.mark.parametrize("holdout", [0.2, None])
def test_the_rows_are_those_of_a_table_in_memory(holdout, train, test):
    draw = RowDraw(1003, holdout, 0.1, train, test, seed=3)
    options = DataOptions(name="", validation=0.1, train=train, test=test)
    expected = draw_splits((1003, None if holdout else 0), options, holdout or 0.0, 3).rows
    codes = draw.codes(0, 1003)
    for number, split in enumerate(SPLITS):
        rows = expected[split][:test] if split == "test" else expected[split]
        assert np.flatnonzero(codes == number).tolist() == rows.tolist()
        assert draw.length(split) == len(rows)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("whole", [0, 10**6], ids=["by chunks", "at once"])
@pytest.mark.parametrize(("train", "test"), [(None, None), (300, 20)])
def test_any_stretch_of_rows_gives_the_same_codes(whole, train, test):
    draw = RowDraw(1003, 0.2, 0.1, train, test, seed=3, whole=whole)
    codes = draw.codes(0, 1003)
    assert len(codes) == 1003
    for start, stop in ((0, 1), (99, 101), (250, 733), (1000, 1003), (5, 5)):
        assert draw.codes(start, stop).tolist() == codes[start:stop].tolist()
    for number, split in enumerate(SPLITS):
        rows = np.flatnonzero(codes == number)
        assert draw.length(split) == len(rows)
        assert [draw.row_of(split, position) for position in range(len(rows))] == rows.tolist()
        assert draw.row_of(split, len(rows)) == 1003
    if train:
        assert draw.length("train") + draw.length("validation") == train
        assert draw.length("test") == test
        assert (codes == LEFT_OUT).any()


@pytest.mark.usefixtures("small_chunks")
def test_large_files_draw_the_shares_by_seed():
    draw = RowDraw(20_000, 0.2, 0.1, seed=1, whole=0)
    # Five deviations of a binomial of 20,000.
    assert draw.length("test") == pytest.approx(4000, abs=5 * 57)
    assert draw.length("validation") == pytest.approx(1600, abs=5 * 40)
    assert (draw.codes(0, 20_000) == RowDraw(20_000, 0.2, 0.1, seed=1, whole=0).codes(0, 20_000)).all()
    assert (draw.codes(0, 20_000) != RowDraw(20_000, 0.2, 0.1, seed=2, whole=0).codes(0, 20_000)).any()
    assert RowDraw(20_000, None, seed=1, whole=0).length("test") == 0
