"""A streamed data set gives the rows, labels and ids of the same job in memory, block by block."""

from __future__ import annotations

import pickle

import numpy as np
import polars as pl
import pytest
import torch

from veracausa.data import blocks, streamed
from veracausa.data.load import load
from veracausa.errors import InputError

ROWS = 230
BLIND = {"training": {"protocol": "blind"}}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(blocks, "PIECE_ROWS", 37)
    monkeypatch.setattr(blocks, "PIECE_BYTES", 700)


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "id": [f"p{k:04d}" for k in rng.permutation(ROWS)],
            "age": rng.integers(18, 90, ROWS),
            "pay": [None if k % 9 == 0 else float(k) / 7 for k in range(ROWS)],
            "job": rng.choice(["clerk", "nurse", "smith"], ROWS),
            "town": rng.choice(["x", "y"], ROWS),
            "y": rng.choice(["no", "yes"], ROWS),
        }
    )


def written(frame, path):
    (frame.write_parquet if path.suffix == ".parquet" else frame.write_csv)(path)
    return str(path)


@pytest.fixture(params=["csv", "parquet"])
def own_files(people, tmp_path, request):
    """One file a party, in the same order, as a job has them."""
    columns = {"active": ["id", "age", "y"], "passive_1": ["id", "pay", "job"], "passive_2": ["id", "town"]}
    files = {name: written(people.select(mine), tmp_path / f"{name}.{request.param}") for name, mine in columns.items()}
    party = {name: {"data": {"path": path}} for name, path in files.items()}
    data = {"name": request.param, "label": "y", "id": "id", "validation": 0.1}
    return data, {"party": party, "partition": {"active_has_features": True}, **BLIND}


def assert_same_rows(stream, memory, rows=16):
    """Part by part: a streamed one and one in memory."""
    assert len(stream) == len(memory)
    assert (stream.features, stream.labels, stream.ids) == (None, None, None)
    assert stream.has_features == memory.has_features
    assert stream.present_count() == memory.present_count()
    for start in (0, 2 * rows):
        found, expected = list(stream.blocks(rows, start)), list(memory.blocks(rows, start))
        assert [(block.start, len(block)) for block in found] == [(block.start, len(block)) for block in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.ids == other.ids
            assert one.present is None
            assert (one.labels is None) == (other.labels is None)
            assert one.labels is None or (
                torch.equal(one.labels, other.labels) and one.labels.dtype == other.labels.dtype
            )
            assert (one.features is None) == (other.features is None)
            # float32, from means that differ in the last of 16 digits.
            assert one.features is None or torch.allclose(one.features, other.features, rtol=1e-6, atol=1e-6)


def test_own_files_are_streamed_as_they_are_read(make_job, own_files):
    data, settings = own_files
    whole = load(make_job(data, **settings))
    stream = load(make_job({**data, "stream": True}, **settings))
    assert (stream.task, stream.classes, stream.active) == (whole.task, whole.classes, whole.active)
    for name, party in stream.parties.items():
        assert party.shape == whole.parties[name].shape
        assert party.profile == whole.parties[name].profile
        assert party.columns == whole.parties[name].columns
        for split in ("train", "validation", "test"):
            assert_same_rows(party.part(split), whole.parties[name].part(split))


@pytest.mark.parametrize("label", ["y", "class", "amount", "fraction"])
def test_one_file_whose_columns_are_split(make_job, people, tmp_path, label):
    people = people.with_columns(
        pl.Series("class", [1.0, 2.0] * (ROWS // 2)),
        pl.Series("amount", range(ROWS)),
        pl.Series("fraction", np.arange(ROWS) % 5 / 4),
    )
    path = written(people.drop("id"), tmp_path / "t.parquet")
    columns = {"passive_1": ["age", "pay"], "passive_2": ["job", "town"]}
    data, settings = {"name": "parquet", "path": path, "label": label}, {"partition": {"columns": columns}, **BLIND}
    whole = load(make_job(data, **settings))
    stream = load(make_job({**data, "stream": True}, **settings))
    assert (stream.task, stream.classes) == (whole.task, whole.classes)
    for name, party in stream.parties.items():
        for split in ("train", "validation", "test"):
            assert_same_rows(party.part(split), whole.parties[name].part(split), rows=50)


def test_test_files_and_limits(make_job, people, tmp_path):
    train, test = written(people[:150], tmp_path / "a.csv"), written(people[150:], tmp_path / "b.csv")
    data = {"name": "csv", "path": train, "test_path": test, "label": "y", "id": "id", "train": 90, "test": 30}
    settings = {"partition": {"columns": {"passive_1": ["age", "pay"], "passive_2": ["job"]}}, **BLIND}
    whole = load(make_job(data, **settings))
    stream = load(make_job({**data, "stream": True}, **settings))
    for name, party in stream.parties.items():
        assert (len(party.train), len(party.test)) == (90, 30)
        for split in ("train", "validation", "test"):
            assert_same_rows(party.part(split), whole.parties[name].part(split))


def test_a_stream_can_be_handed_to_a_process(make_job, own_files):
    data, settings = own_files
    party = load(make_job({**data, "stream": True}, **settings)).parties["passive_1"]
    again = pickle.loads(pickle.dumps(party))  # noqa: S301
    for one, other in zip(party.train.blocks(50), again.train.blocks(50), strict=True):
        assert torch.equal(one.features, other.features)
    with pytest.raises(ValueError, match="streamed"):
        party.train.take(torch.arange(3))


def changed(path, change):
    frame = pl.read_parquet(path) if path.endswith("parquet") else pl.read_csv(path)
    (frame := change(frame)).write_parquet(path) if path.endswith("parquet") else change(frame).write_csv(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda frame: frame.reverse(), "its ids are not those of .* in the same order; .* `veracausa align`"),
        (lambda frame: frame[:-1], "has 229 rows, and .* has 230; .* `veracausa align`"),
        (lambda frame: pl.concat([frame[:-1], frame[:1]]), "rows 1 and 230 have the same id"),
        (
            lambda frame: frame.with_columns(
                pl.when(pl.int_range(pl.len()) == 99).then(None).otherwise(pl.col("id")).alias("id")
            ),
            "row 100: the id .* is missing",
        ),
        (lambda frame: frame.drop("id"), "no column 'id' for the id"),
        (lambda frame: frame.select("id", town=pl.lit("x")), "every column of party 'passive_2' is constant"),
    ],
    ids=["order", "rows", "twice", "missing", "no id", "constant"],
)
def test_files_that_do_not_belong_together_are_refused(make_job, own_files, change, sentence):
    data, settings = own_files
    changed(settings["party"]["passive_2"]["data"]["path"], change)
    with pytest.raises(InputError, match=sentence):
        load(make_job({**data, "stream": True}, **settings))


def test_the_order_is_that_of_ids_wherever_pieces_are_cut(people, tmp_path, monkeypatch):
    ids = people.select("id")
    csv, parquet = written(ids, tmp_path / "a.csv"), written(ids, tmp_path / "a.parquet")

    def order(path):
        return streamed.row_order(blocks.StreamedTable(blocks.open_rows(tmp_path / path), "id"))

    found = {order(csv), order(parquet)}
    monkeypatch.setattr(blocks, "PIECE_ROWS", 11)
    assert found | {order(parquet)} == {order(csv)}
    moved = written(ids.with_columns(pl.Series("id", ["p0001x", *ids["id"][1:]])), tmp_path / "b.csv")
    assert order(moved) not in found


def test_without_ids_rows_are_taken_as_they_stand_and_that_is_said(make_job, own_files):
    data, settings = own_files
    for party in settings["party"].values():
        changed(party["data"]["path"], lambda frame: frame.drop("id"))
    del data["id"]
    assert any("no id column" in note for note in load(make_job({**data, "stream": True}, **settings)).notes)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"training": {"protocol": "split"}}, "data.stream: split training"),
        ({"overlap": {"fraction": 0.5}}, "data.stream: overlap.fraction"),
        ({"training": {"protocol": "blind", "baselines": ["joint"]}}, "data.stream: training.baselines"),
    ],
)
def test_what_needs_rows_in_memory_is_refused(make_job, own_files, settings, sentence):
    data, own = own_files
    with pytest.raises(InputError, match=sentence):
        load(make_job({**data, "stream": True}, **{**own, **settings}))


@pytest.mark.parametrize(
    ("labels", "task", "sentence"),
    [
        (["a"] * 60 + [None] + ["b"] * 60, "auto", "row 61: the label is missing"),
        (["a"] * 121, "auto", "has the one value 'a'"),
        ([str(k) for k in range(100)] + ["oops"] * 2, "auto", "row 101: 'oops' is no number"),
        (["1.5"] * 60 + ["x"] + ["2"] * 60, "regression", "row 61: 'x' is no number to predict"),
    ],
)
def test_labels_are_checked_with_their_rows(make_job, tmp_path, labels, task, sentence):
    frame = pl.DataFrame({"a": range(len(labels)), "b": range(len(labels)), "y": labels})
    path = written(frame, tmp_path / "t.csv")
    data = {"name": "csv", "path": path, "label": "y", "task": task}
    settings = {"partition": {"columns": {"passive_1": ["a"], "passive_2": ["b"]}}, **BLIND}
    for more in ({}, {"stream": True}):
        with pytest.raises(InputError, match=sentence):
            load(make_job({**data, **more}, **settings))
