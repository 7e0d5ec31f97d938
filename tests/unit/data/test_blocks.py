"""Files read in pieces hold what the same files read as a whole do, types and errors included."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from veracausa.data import blocks
from veracausa.data.blocks import open_rows
from veracausa.data.table_files import read_table
from veracausa.errors import InputError, RunError


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of a few rows, so that a small file has many."""
    monkeypatch.setattr(blocks, "PIECE_ROWS", 7)
    monkeypatch.setattr(blocks, "PIECE_BYTES", 64)


def whole(file, start=0):
    """All its rows from `start` on, put together from its pieces."""
    found = list(file.pieces(file.columns, start))
    at = start
    for first, piece in found:
        assert first == at
        at += piece.height
    assert at == file.rows
    return pl.concat([piece for _, piece in found])


CELLS = {
    "int": [str(n) for n in range(30)],
    "float late": [str(n) for n in range(29)] + ["1.5"],
    "word late": [str(n) for n in range(29)] + ["x"],
    "huge": [str(n) for n in range(29)] + ["99999999999999999999"],
    "gaps": ["", "NA", "?"] * 10,
    "gap then int": [""] * 29 + ["7"],
    "bool": ["true", "false"] * 15,
    "bool or int": ["true"] * 15 + ["1"] * 15,
    "quoted": ['"a, ""b"""', '"two\nlines"', "plain"] * 10,
    "padded": [" 1", "2 "] * 15,
    "codes": [f"{n:03d}" for n in range(30)],
}


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("end", ["\n", ""], ids=["line end", "no line end"])
def test_csv_pieces_are_the_file(write_csv, end):
    rows = [",".join(cells) for cells in zip(*CELLS.values(), strict=True)]
    path = write_csv("t.csv", "\ufeff" + ",".join(CELLS) + "\n" + "\n".join(rows) + end)
    given_ = {"text": ("codes",), "categorical": ("int",)}
    file = open_rows(path, **given_)
    expected = read_table(path, **given_).with_columns(pl.col("int").cast(pl.String))
    assert len(list(file.pieces(["int"]))) > 3
    assert dict(file.schema) == dict(expected.schema)
    assert_frame_equal(whole(file), expected)
    for start in (1, 13, 29):
        assert_frame_equal(whole(file, start), expected[start:])
    assert list(file.pieces(["int"], 30)) == []


cells = st.one_of(
    st.integers(-5, 5).map(str), st.floats(-9, 9).map(lambda x: f"{x:.2f}"), st.sampled_from(["", "w", '"q,\n"'])
)


@pytest.mark.usefixtures("small_pieces")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=40))
def test_any_csv_reads_the_same_in_pieces(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows))
    assert_frame_equal(whole(open_rows(path)), read_table(path))


@pytest.mark.usefixtures("small_pieces")
def test_parquet_pieces_are_the_file(tmp_path):
    frame = pl.DataFrame({"n": np.arange(40) / 3, "w": [f"w{n % 3}" for n in range(40)], "b": [None, True] * 20})
    frame.write_parquet(tmp_path / "t[1].parquet", row_group_size=11)
    file = open_rows(tmp_path / "t[1].parquet")
    assert (file.rows, file.typed) == (40, True)
    assert_frame_equal(whole(file), frame)
    assert_frame_equal(whole(file, 17), frame[17:])
    (first, piece), *_ = file.pieces(["w"], 3)
    assert (first, piece.columns, piece.height) == (3, ["w"], 7)
    assert sum(piece.height for _, piece in file.pieces([])) == 40


def test_a_piece_of_a_wide_table_has_fewer_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "PIECE_VALUES", 60)
    pl.DataFrame({f"c{n}": range(50) for n in range(20)}).write_parquet(tmp_path / "t.parquet")
    file = open_rows(tmp_path / "t.parquet")
    assert {piece.height for _, piece in file.pieces(file.columns)} == {3, 2}
    assert {piece.height for _, piece in file.pieces(["c1"])} == {50}


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("t.csv", "a,b\n", {}, "has a header but no rows"),
        ("t.csv", "", {}, "is empty"),
        ("t.csv", "a,a\n1,2\n", {}, "two columns are named 'a'"),
        ("t.csv", "a;b\n1;2\n", {}, "one column only, 'a;b'; set data.separator = ';'"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", {}, "line 3 has 3 fields, the header 2"),
        ("t.csv", "a,b\n1,2\n1", {}, "line 3 has 1 of 2 fields: the file is cut short"),
        ("t.csv", b"a,b\n1,caf\xe9\n", {}, "line 2 is not UTF-8 text; set data.encoding"),
        ("t.csv", b"PAR1", {}, "is a Parquet file"),
        ("t.parquet", "a,b\n1,2\n", {}, "is no Parquet file"),
        ("t.parquet", b"PAR1 and no more", {}, "cannot be read as a table"),
    ],
)
def test_what_is_wrong_is_said_as_of_a_whole_file(tmp_path, name, content, options, sentence):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (read_table, open_rows):
        with pytest.raises(InputError, match=sentence):
            read(path, **options)


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (b"a\n1\n", {"decimal": ","}, "data.decimal = ',' needs the whole file in memory"),
        (b"a\n1\n", {"encoding": "cp1252"}, "is written in cp1252, and data.stream reads plain UTF-8"),
        (b"\x1f\x8b", {}, "is compressed with gzip"),
    ],
)
def test_what_cannot_be_streamed_is_refused(tmp_path, content, options, sentence):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        open_rows(path, **options)


def test_a_quote_that_is_never_closed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "PIECE_BYTES", 64)
    monkeypatch.setattr(blocks, "_LONGEST", 256)
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,2\n3,"4\n' + "5,6\n" * 1000)
    with pytest.raises(InputError, match="a quote behind byte 8 is not closed"):
        open_rows(path)


def test_a_file_that_changed_is_refused(write_csv):
    path = write_csv("t.csv", "a\n1\n2\n")
    file = open_rows(path)
    path.write_text("a\n1\n2\n3\n")
    with pytest.raises(RunError, match="has changed since it was opened"):
        list(file.pieces(["a"]))
    os.remove(path)
    with pytest.raises(RunError, match="cannot be read any more"):
        list(file.pieces(["a"]))


def test_a_file_can_be_handed_to_a_process(write_csv):
    file = open_rows(write_csv("t.csv", "a,b\n1,x\n2,y\n"))
    again = pickle.loads(pickle.dumps(file))  # noqa: S301
    assert_frame_equal(whole(again), whole(file))


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch):
    """Of what Python allocates; Polars has its own memory, which `make bench NAME=scale` measures."""
    monkeypatch.setattr(blocks, "PIECE_BYTES", 1 << 18)
    monkeypatch.setattr(blocks, "_HEADER", 1 << 12)
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{n},{n}.5\n" for n in range(500_000)))
    tracemalloc.start()
    rows = sum(piece.height for _, piece in open_rows(path).pieces(["a", "b"]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 500_000
    # Some copies of a piece, and nothing like the file's 8 MB.
    assert peak < 8 * (1 << 18) < path.stat().st_size / 3
