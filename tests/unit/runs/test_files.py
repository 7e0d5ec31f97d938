"""State as one file, files that are whole or not there, and cells that a spreadsheet would not run."""

from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import Names

from veracausa.atomic import as_written, atomic_write, safe
from veracausa.discovery.job import read_edges
from veracausa.errors import InputError, RunError
from veracausa.runs.store import deserialize_state, digest, flatten, read_tree, same, serialize_state, unflatten
from veracausa.training.predict import Predictions

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    return values.to(draw(st.sampled_from(DTYPES)))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
leaves = st.one_of(tensors(), st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), text)
keys = st.one_of(text, st.integers(0, 9), st.sampled_from(["a", "a/b", "$tensor", "$map", "__metadata__", "'"]))
states = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4))


@settings(max_examples=200, deadline=None)
@given(state=states)
def test_a_state_comes_back_whole(state):
    back = deserialize_state(serialize_state(state))
    assert_equal(back, state)
    assert_equal(unflatten(*flatten(state)), state)
    assert same(back, state)


def assert_equal(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert torch.equal(got, expected)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            assert_equal(got[key], expected[key])
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    else:
        assert got == expected


def test_paths_that_read_alike_do_not_collide():
    state = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, "c": {1: torch.ones(2), "1": torch.zeros(2)}}
    assert_equal(deserialize_state(serialize_state(state)), state)


def test_tied_weights_and_views_are_written():
    weight = torch.arange(12.0).reshape(3, 4)
    state = {"tied": [weight, weight], "strip": weight[:, 1:3], "turned": weight.T}
    assert_equal(deserialize_state(serialize_state(state)), state)


def test_a_model_and_its_optimiser_come_back(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    back = deserialize_state(serialize_state(state))
    assert same(back, state)
    optimizer.load_state_dict(back["optimizer"])
    assert same(optimizer.state_dict(), state["optimizer"])


def test_what_cannot_be_kept_is_named():
    with pytest.raises(TypeError, match="/a/0: a set cannot be kept in a checkpoint"):
        serialize_state({"a": [{1, 2}]})


def test_same_sees_a_difference():
    state = {"a": torch.zeros(2), "b": [1, None]}
    assert same(state, {"a": torch.zeros(2), "b": [1, None]})
    assert not same(state, {"a": torch.tensor([0.0, 1e-45]), "b": [1, None]})
    assert not same(state, {"a": torch.zeros(2), "b": [1, 0]})
    assert not same(state, {"a": torch.zeros(3), "b": [1, None]})


@pytest.mark.parametrize("content", [b"", b"\x08", b"\0" * 8, b"\xff" * 40, (2).to_bytes(8, "little") + b"[]"])
def test_bytes_that_are_no_state_are_refused(content):
    with pytest.raises(RunError, match="not a whole state file"):
        deserialize_state(content)


def test_every_truncation_is_refused_or_seen_by_the_digest():
    content = serialize_state({"a": torch.arange(5), "b": "text"})
    for length in range(len(content)):
        assert digest(content[:length]) != digest(content)
        with pytest.raises(RunError):
            deserialize_state(content[:length])


def test_every_flipped_bit_changes_the_digest():
    content = bytearray(serialize_state({"a": torch.arange(3)}))
    whole = digest(bytes(content))
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        assert digest(bytes(content)) != whole
        content[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(failing, tmp_path, monkeypatch):
    path = tmp_path / "state"
    atomic_write(path, b"old")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if failing == "write":
        # The disk fills up in the middle: some bytes are there already.
        opened = Path.open

        def open_small(self, *arguments, **named):
            file = opened(self, *arguments, **named)
            return _Small(file) if self.name.endswith(".tmp") else file

        monkeypatch.setattr(Path, "open", open_small)
    elif failing == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(path, b"new content")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


class _Small:
    """A file on a disk with room for three more bytes."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content):
        self._file.write(content[:3])
        self._file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_written_file_is_the_new_one(tmp_path):
    path = tmp_path / "state"
    for content in (b"old", b"", b"longer than before"):
        atomic_write(path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def state_file(header: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize("deep", ["skeleton", "header"])
def test_a_file_that_is_nested_without_end_is_a_sentence(deep: str, tmp_path: Path) -> None:
    nested = "[" * 100_000 + "]" * 100_000
    header = json.dumps({"__metadata__": {"skeleton": nested}}) if deep == "skeleton" else nested
    path = tmp_path / "model.safetensors"
    path.write_bytes(state_file(header.encode()))
    with pytest.raises(RunError, match=r"model\.safetensors: not a state file \(it is nested too deep\)"):
        read_tree(path)


@pytest.mark.parametrize(
    "skeleton", ['{"$map": 3}', '{"$map": [[1]]}', "{}", '{"$tensor": "no"}', '{"$map": [[[], 1]]}']
)
def test_a_skeleton_that_fits_nothing_is_a_sentence(skeleton: str) -> None:
    header = json.dumps({"__metadata__": {"skeleton": skeleton}}).encode()
    with pytest.raises(RunError, match="not a whole state file"):
        deserialize_state(state_file(header))


def test_a_state_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, check=Names("gone.safetensors")):
        read_tree(tmp_path / "gone.safetensors")


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_what_could_not_be_written_is_named(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing and syncing do not say by themselves which file it was."""

    def full(*unused: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "replace":
        monkeypatch.setattr(Path, "replace", full)
    elif where == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    target = tmp_path / ("no/such/folder/x" if where == "write" else "x")
    with pytest.raises(OSError, match="No s") as failure:
        atomic_write(target, b"1")
    assert failure.value.filename == str(target)


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\tx", "\rx", "'=1"])
def test_formulas_get_an_apostrophe(text):
    assert safe(text) == f"'{text}"
    assert as_written(safe(text)) == text


@pytest.mark.parametrize("value", ["-1.5", "+3", "-1e-3", "a=b", "", "'quoted'", -1.5, None, 7])
def test_numbers_and_other_words_stay(value):
    assert safe(value) == value


@given(st.text(alphabet="'=+-@\t1.5ax", max_size=6))
def test_what_is_written_is_read_as_it_was(text):
    assert as_written(str(safe(text))) == text


def test_predictions_can_be_opened_in_a_spreadsheet(tmp_path):
    predictions = Predictions(
        ("=1+1", "-7", "x"), ("@no", "yes"), torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), {}
    )
    predictions.to_csv(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[:2] for row in rows[1:]] == [["'=1+1", "'@no"], ["-7", "yes"], ["x", "yes"]]
    assert [as_written(row[0]) for row in rows[1:]] == list(predictions.ids)
    predictions.to_csv(tmp_path / "raw.csv", raw=True)
    assert pl.read_csv(tmp_path / "raw.csv")["id"].to_list() == list(predictions.ids)
    values = Predictions(("=a",), (), torch.tensor([-1.5]), {})
    values.to_csv(tmp_path / "v.csv")
    assert (tmp_path / "v.csv").read_text() == "id,prediction\n'=a,-1.5\n"


def test_the_edges_of_a_run_are_read_by_their_real_names(tmp_path):
    (tmp_path / "edges.csv").write_text("cause,effect\n'=age,bmi\n")
    assert read_edges(tmp_path / "edges.csv") == [("=age", "bmi")]
    (tmp_path / "own.csv").write_text("source,target\n'=age,bmi\n")
    assert read_edges(tmp_path / "own.csv") == [("'=age", "bmi")]
