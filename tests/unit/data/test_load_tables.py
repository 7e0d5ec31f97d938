"""Tables split between parties: columns, ids, labels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import Names

from veracausa.data.load import load, load_new
from veracausa.errors import InputError

ROWS = 40


@pytest.fixture
def people(tmp_path):
    """One file: row n has a = n, b = 100 + n, c = text, y by n."""
    path = tmp_path / "people.csv"
    lines = [f"p{n},{n},{100 + n},{'uvw'[n % 3]},{'yes' if n % 4 else 'no'}" for n in range(ROWS)]
    path.write_text("id,a,b,c,y\n" + "\n".join(lines) + "\n")
    return path


def values(party, split, column="a"):
    """A numeric column's own values again, by position."""
    fitted = next(entry for entry in party.preprocessing["columns"] if entry["name"] == column)
    at = [entry["name"] for entry in party.preprocessing["columns"]].index(column)
    return party.part(split).features[:, at].double() * fitted["std"] + fitted["mean"]


def test_columns_by_name(make_job, people):
    columns = {"passive_1": ["a"], "passive_2": ["b", "c"]}
    data = load(
        make_job({"name": "csv", "path": str(people), "label": "y", "id": "id"}, partition={"columns": columns})
    )
    assert (data.task, data.classes, data.join) == ("classification", ("no", "yes"), "features")
    active, first, second = data.parties.values()
    assert (active.shape, first.shape, second.shape) == ((), (1,), (4,))
    assert (len(active.train), len(active.test)) == (32, 8)
    for split in ("train", "test"):
        numbers = [int(name[1:]) for name in active.part(split).ids]
        assert active.part(split).labels.tolist() == [int(n % 4 != 0) for n in numbers]
        assert values(first, split).round().tolist() == numbers
        assert values(second, split, "b").round().tolist() == [100 + n for n in numbers]
        assert first.part(split).labels is None
    assert float(first.train.features.mean()) == pytest.approx(0, abs=1e-5)


def test_preprocessing_never_sees_the_test_rows(make_job, people):
    columns = {"passive_1": ["a"], "passive_2": ["b"]}
    settings_ = {"partition": {"columns": columns}, "overlap": {"fraction": 0.5}}
    data = load(
        make_job({"name": "csv", "path": str(people), "label": "y", "id": "id", "validation": 0.25}, **settings_)
    )
    for name, offset in (("passive_1", 0), ("passive_2", 100)):
        party = data.parties[name]
        held = [int(text[1:]) + offset for text in party.train.ids if text]
        assert len(held) == len(party.train.features) == (24 if name == "passive_1" else 12)
        assert party.preprocessing["columns"][0]["mean"] == pytest.approx(np.mean(held))


def test_columns_at_random_are_the_seeds(make_job, people):
    def columns(seed, **partition):
        data = load(
            make_job({"name": "csv", "path": str(people), "label": "y", "id": "id"}, seed=seed, partition=partition)
        )
        return [
            tuple(entry["name"] for entry in party.preprocessing["columns"])
            for party in data.parties.values()
            if party.preprocessing
        ]

    assert columns(0) == columns(0)
    assert len({str(columns(seed)) for seed in range(8)}) > 1
    assert sorted(sum(columns(0), ())) == ["a", "b", "c"]
    assert [len(names) for names in columns(0, kind="random", parts=[2, 1])] == [2, 1]
    assert [len(names) for names in columns(0, active_has_features=True)] == [1, 1, 1]


def test_without_an_id_the_row_number_is_one(make_job, people):
    data = load(
        make_job(
            {"name": "csv", "path": str(people), "label": "y"},
            partition={"columns": {"passive_1": ["a"], "passive_2": ["b"]}},
        )
    )
    assert [int(row) - 1 for row in data.parties["active"].test.ids] == values(
        data.parties["passive_1"], "test"
    ).round().tolist()


def test_a_test_file_and_limits(make_job, people, write_csv):
    test = write_csv("test.csv", "id,a,b,c,y\nt1,5,5,new,no\nt2,6,6,,yes\n")
    source = {"name": "csv", "path": str(people), "test_path": str(test), "label": "y", "train": 10, "test": 1}
    data = load(make_job(source, partition={"columns": {"passive_1": ["a"], "passive_2": ["c"]}}))
    assert values(data.parties["passive_1"], "train").round().tolist() == list(range(10))
    assert data.parties["passive_2"].test.features.tolist() == [[0, 0, 0]]
    assert data.notes == ("csv: the first 10 of 40 training rows", "csv: the first 1 of 2 test rows")
    write_csv("test.csv", "id,a,b,c,y\nt1,5,5,new,maybe\n")
    with pytest.raises(InputError, check=Names("test.csv", "y", "maybe", "1")):
        load(make_job(source, partition={"columns": {"passive_1": ["a"], "passive_2": ["c"]}}))


def write_party_files(folder: Path, order_a, order_b):
    """The active party's labels, and two passive files in orders of their own; the value is the person's number."""
    (folder / "y.csv").write_text("id,y\n" + "".join(f"{n:03},{n % 2}\n" for n in range(ROWS)))
    (folder / "a.csv").write_text("person,x\n" + "".join(f"{n:03},{n}\n" for n in order_a))
    pl.DataFrame({"id": [f"{n:03}" for n in order_b], "x": list(order_b)}).write_parquet(folder / "b.parquet")


def party_files(folder: Path):
    return {
        "active": {"data": {"path": str(folder / "y.csv")}},
        "passive_1": {"data": {"path": str(folder / "a.csv"), "id": "person"}},
        "passive_2": {"data": {"path": str(folder / "b.parquet")}},
    }


@given(
    kept_a=st.sets(st.integers(0, ROWS + 9), min_size=30),
    kept_b=st.sets(st.integers(0, ROWS + 9), min_size=30),
    seed=st.integers(0, 100),
    validation=st.sampled_from([0.0, 0.2]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_position_is_the_same_person_at_every_party(make_job, tmp_path, kept_a, kept_b, seed, validation):
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(sorted(kept)).tolist() for kept in (kept_a, kept_b)]
    write_party_files(tmp_path, *orders)
    data = load(
        make_job(
            {"name": "csv", "label": "y", "id": "id", "validation": validation}, seed=seed, party=party_files(tmp_path)
        )
    )
    active = data.parties["active"]
    for split in ("train", "validation", "test"):
        people = [int(name) for name in active.part(split).ids]
        assert active.part(split).labels.tolist() == [n % 2 for n in people]
        for name, kept in (("passive_1", kept_a), ("passive_2", kept_b)):
            part = data.parties[name].part(split)
            everyone = torch.arange(len(people))
            present = part.present(everyone)
            assert present.tolist() == [n in kept for n in people]
            if split != "train":
                assert present.all()
            held = everyone if part.index is None else part.index[everyone[present]]
            got = values(data.parties[name], split, "x")[held].round().tolist()
            assert got == [n for n, here in zip(people, present.tolist(), strict=True) if here]
    assert any("dropped" in note for note in data.notes) == (
        len(active.validation) + len(active.test) < ROWS - len(active.train)
    )


def test_the_active_partys_own_columns(make_job, tmp_path):
    write_party_files(tmp_path, range(ROWS), range(ROWS))
    (tmp_path / "y.csv").write_text("id,own,y\n" + "".join(f"{n:03},{n},{n % 2}\n" for n in range(ROWS)))
    source = {"name": "csv", "label": "y", "id": "id"}
    data = load(make_job(source, party=party_files(tmp_path)))
    assert data.parties["active"].shape == ()
    assert "active: 1 columns of its own are not used" in data.notes[0]
    data = load(make_job(source, party=party_files(tmp_path), partition={"active_has_features": True}))
    assert data.parties["active"].shape == (1,)
    assert data.notes == ()


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [
        ("0,1,2,0,1,2", "classification", ("0", "1", "2")),
        ("10.0,9.0,9.0,10.0,9.0,9.0", "classification", ("9", "10")),
        ("0.5,1.5,2,0,1,2", "regression", ()),
        ("true,false,true,true,false,true", "classification", ("false", "true")),
    ],
)
def test_the_task_is_read_off_the_labels(make_job, write_csv, labels, task, classes):
    rows = labels.split(",")
    path = write_csv("t.csv", "a,b,y\n" + "".join(f"{n},{n},{label}\n" for n, label in enumerate(rows)))
    data = load(make_job({"name": "csv", "path": str(path), "label": "y"}))
    assert (data.task, data.classes) == (task, classes)
    assert data.parties["active"].train.labels.dtype == (torch.int64 if classes else torch.float32)


def test_many_whole_numbers_are_amounts_unless_said_otherwise(make_job, write_csv):
    path = write_csv("t.csv", "a,b,y\n" + "".join(f"{n},{n},{n}\n" for n in range(30)))
    assert load(make_job({"name": "csv", "path": str(path), "label": "y"})).task == "regression"
    forced = load(make_job({"name": "csv", "path": str(path), "label": "y", "task": "classification"}))
    assert len(forced.classes) == 30


ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, ?, <=50K"
)


def test_adult(make_job, data_folder):
    folder = data_folder / "tabular"
    folder.mkdir()
    rich = ADULT.replace("<=", ">").replace("39", "61").replace("?", "Cuba").replace("Male", "Female")
    (folder / "adult.data").write_text(f"{ADULT}\n{rich}\n\n")
    (folder / "adult.test").write_text(f"|1x3 Cross validator\n{ADULT}.\n{rich}.\n{rich}.\n\n")
    columns = {"passive_1": ["age", "native-country"], "passive_2": ["sex"]}
    job = make_job({"name": "adult"}, partition={"columns": columns})
    data = load(job)
    assert data.classes == ("<=50K", ">50K")
    assert data.parties["active"].test.labels.tolist() == [0, 1, 1]
    assert data.parties["passive_1"].train.features.tolist() == [[-1, 0, 1], [1, 1, 0]]
    fitted = {name: data.parties[name].preprocessing for name in data.passive}
    new = load_new(job, folder / "adult.test", fitted, data.classes)
    assert new.parties["active"].test.labels.tolist() == [0, 1, 1]
    (folder / "adult.data").write_text(f"{ADULT}\n{ADULT[:30]}")
    with pytest.raises(InputError, check=Names("adult.data", "2", "4", "15")):
        load(job)


@pytest.mark.parametrize(
    ("source", "file", "rows"),
    [
        ({"name": "adult"}, "tabular/adult.data", (32561, 16281)),
        (
            {"name": "csv", "path": "tabular/bank_full.csv", "separator": ";", "label": "y"},
            "tabular/bank_full.csv",
            (36169, 9042),
        ),
    ],
)
def test_the_real_tables(make_job, source, file, rows):
    folder = os.environ.get("VERACAUSA_DATA")
    if not folder or not (Path(folder) / file).is_file():
        pytest.skip(f"needs {file} under VERACAUSA_DATA")
    data = load(make_job(source))
    assert (len(data.parties["active"].train), len(data.parties["active"].test)) == rows
    assert len(data.classes) == 2
    assert all(torch.isfinite(data.parties[name].train.features).all() for name in data.passive)


@pytest.fixture
def trained(make_job, people):
    job = make_job(
        {"name": "csv", "path": str(people), "label": "y", "id": "id"},
        partition={"columns": {"passive_1": ["a"], "passive_2": ["c"]}},
    )
    data = load(job)
    return job, {name: data.parties[name].preprocessing for name in data.passive}, data.classes


def test_new_rows_in_one_file(trained, write_csv):
    job, fitted, classes = trained
    data = load_new(job, write_csv("new.csv", "id,a,c\nn1,3,u\nn2,4,never\n"), fitted, classes)
    assert list(data.parties) == ["active", "passive_1", "passive_2"]
    assert data.parties["active"].test.ids == ("n1", "n2")
    assert data.parties["active"].test.labels is None
    assert values(data.parties["passive_1"], "test").round().tolist() == [3, 4]
    assert data.parties["passive_2"].test.features.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert len(data.parties["passive_1"].train) == 0
    labelled = load_new(job, write_csv("new.csv", "a,c,y\n3,u,no\n4,v,yes\n"), fitted, classes)
    assert labelled.parties["active"].test.ids == ("1", "2")
    assert labelled.parties["active"].test.labels.tolist() == [0, 1]


def test_new_rows_in_a_file_a_party(trained, write_csv):
    job, fitted, classes = trained
    files = {
        "passive_1": write_csv("one.csv", "id,a\nx,1\ny,2\nz,3\n"),
        "passive_2": write_csv("two.csv", "id,c\nz,w\nx,u\n"),
    }
    data = load_new(job, files, fitted, classes)
    assert data.parties["active"].test.ids == ("x", "z")
    assert values(data.parties["passive_1"], "test").round().tolist() == [1, 3]
    assert data.parties["passive_2"].test.features.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert data.notes == ("1 of 3 rows dropped: not every party holds them",)
    files["active"] = write_csv("who.csv", "id,y\nz,yes\nx,no\n")
    data = load_new(job, files, fitted, classes)
    assert data.parties["active"].test.ids == ("z", "x")
    assert data.parties["active"].test.labels.tolist() == [1, 0]


def test_wrong_new_rows(trained, write_csv):
    job, fitted, classes = trained
    one = write_csv("one.csv", "id,a\nx,1\n")
    for files, message in (
        ({"passive_1": one}, "no file was given for it; give one as passive_2=FILE"),
        ({"pasive_1": one}, "did you mean 'passive_1'"),
        ({"passive_1": one, "passive_2": write_csv("two.csv", "id,c\nq,u\n")}, "no row is held by every party"),
        ({"passive_1": one, "passive_2": write_csv("three.csv", "nr,c\nx,u\n")}, "no column 'id' for the id"),
        (write_csv("four.csv", "id,a\nx,1\n"), "no column 'c'"),
        (write_csv("five.csv", "id,a,c,y\nx,1,u,perhaps\n"), "'perhaps' is no known class"),
        (Path("absent.csv"), "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            load_new(job, files, fitted, classes)
