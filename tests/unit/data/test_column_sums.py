"""Preprocessing fitted from pieces of rows is the one fitted in memory, up to rounding."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veracausa.data import blocks, column_sums, preprocessing
from veracausa.data.blocks import open_rows
from veracausa.data.column_sums import DistinctCount, RunningMoments, WordCounts, fit_pieces
from veracausa.data.columns import profile
from veracausa.data.table_files import read_table
from veracausa.errors import InputError


def both(path, columns=None, **options):
    """Fitted and described in pieces, and in memory."""
    file, frame = open_rows(path, **options), read_table(path, **options)
    columns = columns or frame.columns

    def pieces():
        return ((range(first, first + piece.height), piece) for first, piece in file.pieces(columns))

    fitted = preprocessing.fit(frame, columns, str(path))
    return fit_pieces(file, pieces, columns), (fitted, profile(frame, fitted))


def assert_same(found, expected):
    assert [column["name"] for column in found["columns"]] == [column["name"] for column in expected["columns"]]
    for one, other in zip(found["columns"], expected["columns"], strict=True):
        assert {k: v for k, v in one.items() if k not in ("mean", "std")} == {
            k: v for k, v in other.items() if k not in ("mean", "std")
        }
        for name in ("mean", "std"):
            # A mean of a million has lost ten of the sixteen digits that a spread of 3 beside it could have.
            assert one.get(name, 0) == pytest.approx(other.get(name, 0), rel=1e-10, abs=1e-12)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(blocks, "PIECE_ROWS", 7)
    monkeypatch.setattr(blocks, "PIECE_BYTES", 128)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 200
    return pl.DataFrame(
        {
            "amount": rng.normal(1e6, 3.0, n),
            "gaps": [
                None if gap else int(k) for gap, k in zip(rng.random(n) < 0.3, rng.integers(0, 9, n), strict=True)
            ],
            "few": rng.choice(["a", "b", "c"], n),
            "words with gaps": [None if k % 5 == 0 else f"w{k % 11}" for k in range(n)],
            "many": [f"v{int(k)}" for k in rng.zipf(1.3, n) % 500],
            "constant": [3] * n,
            "constant with gaps": [None if k == 150 else 4.0 for k in range(n)],
            "empty": pl.Series([None] * n, dtype=pl.Float64),
            "flag": rng.random(n) < 0.5,
            "mixed": [str(k) if k % 3 else "none" for k in range(n)],
        }
    )


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_the_fit_of_pieces_is_that_of_the_whole(table, tmp_path, name):
    path = tmp_path / name
    (table.write_csv if name.endswith("csv") else table.write_parquet)(path)
    (found, seen), (expected, in_memory) = both(path)
    assert_same(found, expected)
    assert [column for column in seen if column["type"] != "number"] == [
        column for column in in_memory if column["type"] != "number"
    ]
    assert seen == in_memory


def test_codes_and_dates_of_a_parquet_file(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pl.DataFrame({"code": [f"{k % 4:03d}" for k in range(50)], "day": pl.Series(range(50)).cast(pl.Date)})
    frame.write_parquet(path)
    (found, seen), (expected, in_memory) = both(path)
    assert_same(found, expected)
    assert found["columns"][0]["kind"] == "categorical"
    assert seen == in_memory


def test_padded_numbers_and_declared_words_of_a_csv_file(write_csv):
    text = "padded,code\n" + "".join(f" {k} ,{k % 3}\n" for k in range(60))
    (found, seen), (expected, in_memory) = both(write_csv("t.csv", text), categorical=("code",))
    assert_same(found, expected)
    assert [column["kind"] for column in found["columns"]] == ["numeric", "categorical"]
    assert seen == in_memory


@pytest.mark.parametrize(
    "cells",
    [["1"] * 40 + ["oops"] + ["2"] * 20, ["1.5"] * 40 + ["inf"] + ["2"] * 20, ["1"] * 30 + [" inf"] + ["2 "] * 30],
    ids=["a word among numbers", "infinity", "padded infinity"],
)
def test_errors_name_the_row_of_the_file(write_csv, cells):
    path = write_csv("t.csv", "x,y\n" + "".join(f"{cell},1\n" for cell in cells))
    with pytest.raises(InputError) as in_memory:
        preprocessing.fit(read_table(path), ["x"], str(path))
    file = open_rows(path)
    with pytest.raises(InputError) as streamed:
        fit_pieces(file, lambda: ((range(f, f + p.height), p) for f, p in file.pieces(["x"])), ["x"])
    assert str(streamed.value) == str(in_memory.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60), st.integers(1, 9))
def test_running_moments(values, size):
    sums = RunningMoments()
    for at in range(0, len(values), size):
        sums.add(np.array(values[at : at + size]))
    largest = max(1.0, *map(abs, values))
    assert sums.mean == pytest.approx(np.mean(values), abs=1e-12 * largest)
    assert sums.std == pytest.approx(np.std(values), abs=1e-7 * largest)
    assert sums.varies == (len(set(values)) > 1)


def test_a_spread_far_from_zero_keeps_its_digits():
    values = 1e9 + np.random.default_rng(0).normal(0, 1, 10_000)
    sums = RunningMoments()
    for part in np.split(values, 100):
        sums.add(part)
    # Sums of squares would have lost all digits of it.
    assert sums.std == pytest.approx(values.std(), rel=1e-6)


def test_words_beyond_what_is_kept_are_counted_again(write_csv, monkeypatch):
    monkeypatch.setattr(column_sums, "MOST_WORDS", 70)
    rng = np.random.default_rng(1)
    words = [f"common{k % 5}" if k % 2 else f"rare{rng.integers(10**6)}" for k in range(3000)]
    rng.shuffle(words)
    path = write_csv("t.csv", "w\n" + "\n".join(words) + "\n")
    (found, _), (expected, _) = both(path)
    assert {f"common{k}" for k in range(5)} <= set(found["columns"][0]["values"])
    assert found["columns"][0]["other"] is True
    assert expected["columns"][0]["other"] is True
    counts = WordCounts()
    for at in range(0, len(words), 50):
        counts.add(pl.Series(words[at : at + 50]))
    assert not counts.exact
    assert len(counts.counts) <= 70


def test_different_values_are_counted_exactly_until_there_are_many():
    few, many = DistinctCount(), DistinctCount()
    for at in range(0, 200_000, 10_000):
        values = pl.Series(range(at, at + 10_000))
        few.add(values % 1000)
        many.add(values)
    assert few.count == 1000
    # The spread of the estimate is 1/sqrt(4096).
    assert many.count == pytest.approx(200_000, rel=5 / 64)
