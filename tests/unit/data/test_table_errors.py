"""What is wrong with a table is said in one sentence: which file, which place, what to do."""

from __future__ import annotations

import pytest

from veracausa.data.load import load
from veracausa.errors import InputError

GOOD = "id,a,b,y\n" + "".join(f"p{n},{n},{n * n},{n % 2}\n" for n in range(10))


def refused(make_job, path, message, data=None, **settings):
    source = {"name": "csv", "path": str(path), "label": "y", "id": "id", **(data or {})}
    with pytest.raises(InputError, match=message) as caught:
        load(make_job(source, **settings))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv: is empty"),
        ("id,a,b,y\n", r"t\.csv: has a header but no rows"),
        (GOOD.replace("p7,", "p2,"), r"t\.csv: id 'p2' stands in rows 3 and 8; keep one"),
        (GOOD.replace("p7,", ","), r"t\.csv: row 8: the id \('id'\) is missing"),
        (GOOD.replace("p3,3,9,1", "p3,3,9,"), r"t\.csv: label column 'y', row 4: the label is missing"),
        (GOOD.replace("p3,3,9,1", "p3,inf,9,1"), r"t\.csv: column 'a', row 4: infinity"),
        (GOOD + "p10,1", r"t\.csv: line 12 has 2 of 4 fields: the file is cut short"),
        (
            GOOD.replace("p3,3,9,1", "p3,3,9,1,1"),
            r"t\.csv: cannot be read as a table: line 5 has 5 fields, the header 4",
        ),
        (GOOD.replace("id,a,b,y", "id,a,a,y"), r"t\.csv: two columns are named 'a'"),
        (GOOD.replace(",", ";"), r"one column only.*set data.separator = ';'"),
        (GOOD.replace(",0\n", ",1\n"), r"label column 'y' has the one value '1'"),
        (GOOD.replace("id,a", "ID,a"), r"no column 'id' for the id \(there are: ID, a, b, y\)"),
        (GOOD.replace(",y\n", ",why\n"), r"no column 'y' for the label"),
    ],
)
def test_wrong_files(make_job, write_csv, text, message):
    refused(make_job, write_csv("t.csv", text), message)


def test_files_that_are_none(make_job, tmp_path, write_csv):
    refused(make_job, tmp_path / "absent.csv", r"data.path = .*absent.csv': no such file or folder")
    refused(make_job, tmp_path, "is a folder; name the file in it")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and then nothing")
    refused(make_job, tmp_path / "t.parquet", r"t\.parquet: cannot be read as a table")
    (tmp_path / "t.csv").write_bytes(b"id,a,b,y\n\xff\xfe,1,2,3\n")
    refused(make_job, tmp_path / "t.csv", r"t\.csv: line 2 is not UTF-8 text; set data\.encoding")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition": {"columns": {"passive_1": ["a"], "passive_2": ["a"]}}}, "by 'passive_1' and 'passive_2'"),
        ({"partition": {"columns": {"passive_1": ["a"], "passive_2": ["y"]}}}, "which is the label"),
        ({"partition": {"columns": {"passive_1": ["a"], "passive_2": ["id"]}}}, "which is the id"),
        ({"partition": {"columns": {"passive_1": ["a"], "passive_2": ["bb"]}}}, "no column 'bb'"),
        ({"partition": {"columns": {"passive_1": ["a"], "passive_2": []}}}, "'passive_2' is left with no columns"),
        ({"partition": {"columns": {"passive_1": ["a"]}}}, "partition.columns.passive_2: is missing"),
        ({"partition": {"columns": {"pasive_1": ["a"]}}}, "did you mean 'passive_1'"),
        ({"partition": {"kind": "columns"}}, "partition.columns.passive_1: is missing"),
        ({"partition": {"kind": "strips"}}, "is for pictures"),
        ({"partition": {"kind": "random", "columns": {"passive_1": ["a"]}}}, "remove one of the two"),
        ({"partition": {"parts": [2, 1]}}, "asks for 3 columns, but there are 2"),
        ({"parties": {"passive": ["p", "q", "r"]}}, "too few for 3 parties"),
        ({"party": {"passive_1": {"data": {"columns": ["a"], "colums": 1}}}}, "did you mean 'columns'"),
        ({"party": {"passive_1": {"data": {"columns": 5}}}}, "party.passive_1.data.columns"),
        ({"party": {"passive_1": {"data": {"test_path": "x"}}}}, "party.passive_1.data.test_path"),
        (
            {"party": {"passive_1": {"data": {"columns": ["a"]}}}, "partition": {"columns": {"passive_1": ["b"]}}},
            "both name columns",
        ),
    ],
)
def test_wrong_columns(make_job, write_csv, settings, message):
    refused(make_job, write_csv("t.csv", GOOD), message, **settings)


def test_parties_with_nothing_in_common(make_job, write_csv):
    write_csv("labels.csv", GOOD)
    write_csv("t.csv", GOOD)
    own = write_csv("own.csv", "id,x\nq1,1\nq2,2\n")
    party = {"passive_1": {"data": {"path": str(own)}}}
    columns = {"passive_2": ["a"]}
    refused(
        make_job,
        own.parent / "t.csv",
        "no test row is held by every party",
        party=party,
        partition={"columns": columns},
    )
    test = write_csv("test.csv", GOOD)
    own_test = write_csv("own_test.csv", "id,x\np1,1\np2,2\n")
    party = {"passive_1": {"data": {"path": str(own), "test_path": str(own_test)}}}
    refused(
        make_job,
        own.parent / "t.csv",
        r"party 'passive_1': no id of .*own\.csv is among the active party's",
        data={"test_path": str(test)},
        party=party,
        partition={"columns": columns},
    )


def test_files_without_a_way_to_match(make_job, write_csv):
    path, own = write_csv("t.csv", GOOD), write_csv("own.csv", "x\n1\n2\n")
    refused(
        make_job,
        path,
        "matched by an id column",
        data={"id": None},
        party={"passive_1": {"data": {"path": str(own)}}},
        partition={"columns": {"passive_2": ["a"]}},
    )
    with pytest.raises(InputError, match=r"party.active.data.path: is missing; say which file holds its labels"):
        load(make_job({"name": "csv", "label": "y"}))


def test_a_hold_out_that_leaves_nothing(make_job, write_csv):
    refused(make_job, write_csv("t.csv", GOOD), "leaves none of the 10 rows", data={"holdout": 0.99})


def test_regression_labels_must_be_numbers(make_job, write_csv):
    text = GOOD.replace("p3,3,9,1", "p3,3,9,many")
    refused(make_job, write_csv("t.csv", text), "row 4: 'many' is no number to predict", data={"task": "regression"})
