"""NumPy's files as tables and as pictures: read without pickle, refused in one sentence before room is made."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from refusals import Names

from veracausa.data.array_files import MOST_BYTES, read_arrays
from veracausa.data.load import load, load_new
from veracausa.data.table_files import read_table
from veracausa.errors import InputError

DRAW = np.random.default_rng(0)
PICTURES = DRAW.integers(0, 256, (30, 8, 6)).astype(np.uint8)
LABELS = np.arange(30) % 3


def test_arrays_are_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    words = np.array(["a", "b", "c"])
    np.savez(path, x=np.eye(3), age=np.array([[1], [2], [3]]), ward=words, code=np.array([b"1", b"2", b"3"]))
    frame = read_table(path)
    assert frame.columns == ["x0", "x1", "x2", "age", "ward", "code"]
    assert frame["age"].to_list() == [1, 2, 3]
    assert frame["ward"].to_list() == ["a", "b", "c"]
    assert frame.schema["code"] == pl.Categorical, "text stays text, as in a Parquet file"
    np.savez_compressed(path, x=np.eye(3, dtype=">f4"), t=np.array(["2020-01-01"] * 3, "M8[D]"), h=np.ones(3, "f2"))
    frame = read_table(path)
    assert frame["x1"].to_list() == [0, 1, 0]
    assert frame.schema["t"] == pl.Datetime("us")
    np.save(tmp_path / "b.npy", np.asfortranarray(np.arange(6).reshape(3, 2)))
    assert read_table(tmp_path / "b.npy", text=("row",)).rows() == [(1, 0, 1), (2, 2, 3), (3, 4, 5)]
    np.save(tmp_path / "c.npy", np.array([(1, 2.5)], [("age", "i4"), ("dose", "f8")]))
    assert read_table(tmp_path / "c.npy").to_dicts() == [{"age": 1, "dose": 2.5}]


def header(shape: tuple[int, ...], body: bytes, kind: str = "<f8") -> bytes:
    stream = io.BytesIO()
    told = {"shape": shape, "fortran_order": False, "descr": kind}
    np.lib.format.write_array_header_1_0(stream, told)
    return stream.getvalue() + body


class Evil:
    def __reduce__(self) -> Any:
        return print, ("pickle ran",)


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name.replace("_npy", ".npy"), content)
    return stream.getvalue()


REFUSED = {
    "huge.npy": (header((1 << 40,), b"1234"), "4"),
    "many.npy": (header((MOST_BYTES,), b""), "0"),
    "negative.npy": (header((-1,), b""), "negative.npy"),
    "twice.npy": (header((-2, -3), b"\0" * 48), "(-2, -3)"),
    "true.npy": (header((True, 3), b"\0" * 24), "true.npy"),
    "wide.npy": (header((0, 1 << 40), b""), "wide.npy"),
    "spread.npy": (header((1, 1 << 21), b"\0" * (1 << 21), "|u1"), "2,097,152", "1,048,576"),
    "nothing.npy": (header((1 << 40,), b"", "|V0"), "nothing.npy"),
    "cut.npy": (header((3,), b"\0" * 16), "24", "16"),
    "more.npy": (header((3,), b"\0" * 32), "24", "32"),
    "noise.npy": (b"hello, this is text", "noise.npy"),
    "empty.npz": (archive(), "empty.npz"),
    "cut.npz": (archive(a_npy=header((3,), b"\0" * 24))[:-30], "cut.npz"),
    "huge.npz": (archive(a_npy=header((1 << 40,), b"\0" * 24)), "a", "24"),
    "other.npz": (archive(a_txt=b"x"), "a_txt"),
    "deep.npz": (archive(a_npy=header((1, 2, 3), b"\0" * 48)), "a", "(1, 2, 3)"),
    "long.npz": (archive(a_npy=header((1,), b"\0" * 8), b_npy=header((2,), b"\0" * 16)), "a 1", "b 2"),
    "complex.npz": (archive(a_npy=header((1,), b"\0" * 16, "<c16")), "a", "complex128"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_broken_is_one_sentence(tmp_path: Path, name: str) -> None:
    content, *named = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, check=Names(*named) if not named[0].endswith((name, ")")) else None, match=name):
        read_table(tmp_path / name)


def test_objects_are_never_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", a=np.array([Evil()], dtype=object))
    (tmp_path / "b.npz").write_bytes(archive(a_npy=pickle.dumps(Evil())))
    for name in ("a.npy", "a.npz", "b.npz"):
        with pytest.raises(InputError, match=name):
            read_arrays(tmp_path / name)
    assert "ran" not in capsys.readouterr().out


def test_a_wrong_name_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(2))
    np.savez(tmp_path / "a.npz", x=np.eye(2))
    for name in ("a.npy", "a.npz"):
        other = (tmp_path / name).rename(tmp_path / f"{name[2:]}.csv")
        with pytest.raises(InputError, match=rf"ends in \.{name[2:]}"):
            read_table(other)


def test_tables_of_two_parties(make_job: Any, tmp_path: Path) -> None:
    ids = np.array([f"p{row}" for row in range(40)])
    np.savez(tmp_path / "bank.npz", id=ids, income=np.arange(40), good=np.arange(40) % 2)
    np.savez(tmp_path / "shop.npz", id=ids[::-1], spent=np.arange(40.0)[::-1])
    party = {"active": {"data": {"path": str(tmp_path / "bank.npz")}}}
    party["passive_1"] = {"data": {"path": str(tmp_path / "shop.npz")}}
    job = make_job(
        {"name": "parquet", "label": "good", "id": "id"},
        parties={"active": "active", "passive": ["passive_1"]},
        party=party,
        partition={"active_has_features": True},
    )
    data = load(job)
    active, passive = data.parties["active"].train, data.parties["passive_1"].train
    assert torch.equal(active.features, passive.features), "rows are matched by the id"


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_pictures_with_a_test_part_and_without(make_job: Any, tmp_path: Path) -> None:
    grey = {"name": "images", "grey": True}
    own = write(tmp_path / "own.npz", images=PICTURES, labels=LABELS)
    whole = load(make_job({**grey, "path": str(own)}))
    assert whole.classes == ("0", "1", "2")
    assert [len(whole.parties["active"].part(split)) for split in ("train", "test")] == [24, 6]
    keras = write(
        tmp_path / "k.npz", x_train=PICTURES[:20], y_train=LABELS[:20], x_test=PICTURES[20:], y_test=LABELS[20:]
    )
    data = load(make_job({**grey, "path": str(keras)}))
    assert np.array_equal(data.parties["passive_1"].test.features[:, 0].numpy(), PICTURES[20:, :, :3])
    assert data.parties["active"].test.labels.tolist() == LABELS[20:].tolist()
    words = np.array(["cat", "dog", "10"])[LABELS][:, None]
    med = write(
        tmp_path / "m.npz",
        train_images=PICTURES,
        train_labels=words,
        test_images=PICTURES[:3],
        test_labels=words[:3],
    )
    assert load(make_job({**grey, "path": str(med)})).classes == ("10", "cat", "dog")


def test_pictures_are_the_same_as_in_a_folder(make_job: Any, tmp_path: Path) -> None:
    """Channels, note and size are those of the same pictures as files."""
    for part in ("train", "test"):
        for row, picture in enumerate(PICTURES):
            place = tmp_path / "folder" / part / str(LABELS[row])
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(place / f"{row:02}.png")
    arrays = write(tmp_path / "a.npz", x_train=PICTURES, y_train=LABELS, x_test=PICTURES, y_test=LABELS)
    for settings in ({"size": 4}, {"size": 4, "grey": True}):
        one, other = (
            load(make_job({"name": "images", "path": str(path), **settings})) for path in (arrays, tmp_path / "folder")
        )
        assert one.notes == other.notes
        mine, theirs = (data.parties["passive_2"].train for data in (one, other))
        assert torch.equal(mine.features, theirs.features)
    job = make_job({"name": "images", "path": str(arrays), "size": 4})
    np.save(tmp_path / "new.npy", PICTURES[:2, :4, :4])
    assert load_new(job, tmp_path / "new.npy", {}, ["0", "1", "2"]).parties["active"].test.labels is None
    new = write(tmp_path / "new.npz", images=PICTURES[:2, :4, :4], labels=LABELS[:2])
    found = load_new(job, new, {}, ["0", "1", "2"]).parties
    assert found["active"].test.labels.tolist() == [0, 1]
    assert found["passive_1"].test.features.shape[1] == 3
    with pytest.raises(InputError, check=Names("1")):
        load_new(job, new, {}, ["0", "2"])


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"images": PICTURES}, "numpy.savez"),
        ({"images": PICTURES / 255, "labels": LABELS}, "astype"),
        ({"images": PICTURES, "labels": LABELS[:9]}, "30"),
        ({"images": PICTURES, "labels": LABELS + 0.5}, "float64"),
        ({"images": np.stack([PICTURES] * 3, 3), "labels": LABELS}, "(30, 8, 6, 3)"),
        ({"x_train": PICTURES, "y_train": LABELS, "x_test": PICTURES, "y_test": LABELS + 1}, "'3'"),
    ],
)
def test_wrong_pictures_are_one_sentence(make_job: Any, tmp_path: Path, arrays: Any, named: str) -> None:
    path = write(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError) as refused:
        load(make_job({"name": "images", "path": str(path), "grey": True}))
    assert named in str(refused.value)
    assert "a.npz" in str(refused.value)
