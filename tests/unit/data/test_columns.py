"""Files and words of a table: what is a number, what is refused, and the sentence that says so."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile

import polars as pl
import pytest
from refusals import Names

from veracausa.data.load import load, load_new
from veracausa.data.table_files import read_table
from veracausa.errors import InputError

ROWS = 60
GOOD = "id,a,b,y\n" + "".join(f"p{n},{n + 0.5},{n * n},{n % 2}\n" for n in range(ROWS))
GERMAN = "id;a;b;y\n" + "".join(f"p{n};{n},5;1.{n:03d},25;{n % 2}\n" for n in range(ROWS))


def job_of(make_job, path, **data):
    columns = {"passive_1": ["a"], "passive_2": ["b"]}
    source = {"name": "csv", "path": str(path), "label": "y", "id": "id", **data}
    return make_job(source, partition={"columns": columns})


def said(make_job, path, **data):
    with pytest.raises(InputError) as caught:
        load(job_of(make_job, path, **data))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_stray_word_is_named_with_its_row_and_the_ways_out(make_job, write_csv):
    path = write_csv("t.csv", GOOD.replace("p17,17.5", "p17,abc"))
    message = said(make_job, path)
    assert "t.csv: column 'a', row 18: 'abc' is no number" in message
    for way in ("correct it", "leave it empty", "data.missing", "data.categorical"):
        assert way in message
    assert load(job_of(make_job, path, missing=["", "abc"])).parties["passive_1"].shape == (2,)
    assert load(job_of(make_job, path, categorical=["a"])).parties["passive_1"].shape == (48,)


def test_a_word_of_a_test_row_is_refused_too(make_job, write_csv):
    held_out = load(job_of(make_job, write_csv("t.csv", GOOD))).parties["passive_1"].test.ids[0]
    at = int(held_out[1:])
    path = write_csv("t.csv", GOOD.replace(f"{held_out},{at}.5", f"{held_out},abc"))
    assert f"row {at + 1}: 'abc' is no number" in said(make_job, path)


def test_a_word_among_new_rows_is_refused(make_job, write_csv):
    job = job_of(make_job, write_csv("t.csv", GOOD))
    data = load(job)
    fitted = {name: data.parties[name].preprocessing for name in data.passive}
    new = write_csv("new.csv", GOOD.replace("p3,3.5", "p3,3,5".replace(",5", ";5")))
    with pytest.raises(InputError, check=Names("new.csv", "a", "3;5", "4")):
        load_new(job, new, fitted, data.classes)


def test_words_with_some_numbers_are_a_category_and_it_is_said(make_job, write_csv):
    text = "".join(f"p{n},{n % 3 if n % 4 else 'ward'},{n},{n % 2}\n" for n in range(ROWS))
    data = load(job_of(make_job, write_csv("t.csv", "id,a,b,y\n" + text)))
    assert data.parties["passive_1"].shape == (4,)
    assert any("column 'a'" in note and "'ward'" in note and "category" in note for note in data.notes)


def test_a_label_of_amounts_with_a_word_is_not_sixty_classes(make_job, write_csv):
    rows = "".join(f"p{n},{n},{n * n},{n * 1.5 if n != 7 else 'lots'}\n" for n in range(ROWS))
    path = write_csv("t.csv", "id,a,b,y\n" + rows)
    assert "column 'y', row 8: 'lots' is no number" in said(make_job, path)
    assert load(job_of(make_job, path, task="classification")).task == "classification"


def test_decimal_commas_and_thousands(make_job, write_csv):
    path = write_csv("t.csv", GERMAN)
    assert "column 'a', row" in said(make_job, path, separator=";")
    assert "has a decimal comma; set data.decimal = ','" in said(make_job, path, separator=";")
    assert "data.thousands = '.'" in said(make_job, path, separator=";", decimal=",")
    frame = read_table(path, ";", decimal=",", thousands=".", text=("id",))
    assert frame["a"].to_list()[:2] == [0.5, 1.5]
    assert frame["b"].to_list()[:2] == [1000.25, 1001.25]
    assert frame["y"].dtype == pl.Int64
    data = load(job_of(make_job, path, separator=";", decimal=",", thousands="."))
    assert [data.parties[name].shape for name in data.passive] == [(1,), (1,)]


def test_a_point_where_the_comma_is_the_decimal_mark_is_never_a_fraction(write_csv):
    path = write_csv("t.csv", "a;b\n1,5;x\n2.125;y\n")
    with pytest.raises(InputError, check=Names("t.csv", "a", "2.125", "2")):
        read_table(path, ";", decimal=",")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"1,234"', "a decimal comma, or a comma between thousands"),
        ('"1,234,567.5"', "set data.thousands = ','"),
        ("1 234 567", "set data.thousands = ' '"),
        ("12 %", "a sign beside the number; take it out"),
        ("€5", "a sign beside the number; take it out"),
    ],
)
def test_other_ways_to_write_a_number(make_job, write_csv, value, message):
    rows = "".join(f"p{n},{value},{n},{n % 2}\n" for n in range(ROWS))
    assert message in said(make_job, write_csv("t.csv", "id,a,b,y\n" + rows))


@pytest.mark.parametrize("word", ["NA", "n/a", "N/A", "-", "?", "null", "NaN", "#N/A", ""])
def test_the_usual_words_for_missing(make_job, write_csv, word):
    data = load(job_of(make_job, write_csv("t.csv", GOOD.replace("p17,17.5", f"p17,{word}"))))
    assert {column["name"]: column["missing"] for column in data.parties["passive_1"].profile}["a"] <= 1
    assert data.parties["passive_1"].preprocessing["columns"][0]["kind"] == "numeric"


def test_white_space_around_numbers_does_not_make_them_words(make_job, write_csv):
    path = write_csv("t.csv", GOOD.replace(",1", ", 1"))
    assert load(job_of(make_job, path)).parties["passive_1"].shape == (1,)


def test_dates_and_codes_stay_words(make_job, write_csv):
    rows = "".join(f"p{n},{1 + n % 28}.12.2024,{n},{n % 2}\n" for n in range(ROWS))
    data = load(job_of(make_job, write_csv("t.csv", "id,a,b,y\n" + rows)))
    assert data.parties["passive_1"].profile[0]["type"] == "category"
    assert any("column 'a' is a category of 2" in note and "one-hot into 2" in note for note in data.notes)


def test_text_of_a_parquet_file_stays_text(make_job, tmp_path):
    path = tmp_path / "t.parquet"
    frame = pl.read_csv(GOOD.encode()).with_columns(pl.col("b").cast(pl.String))
    frame.write_parquet(path)
    data = load(job_of(make_job, path))
    assert data.parties["passive_2"].preprocessing["columns"][0]["kind"] == "categorical"


def test_gzip_is_read_and_a_file_cut_short_is_known(make_job, tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(GOOD.encode()))
    assert load(job_of(make_job, path)).parties["passive_1"].shape == (1,)
    path.write_bytes(gzip.compress((GOOD + "p99,1").encode()))
    assert f"line {ROWS + 2} has 2 of 4 fields: the file is cut short" in said(make_job, path)
    path.write_bytes(gzip.compress(GOOD.encode())[:-20])
    assert "its gzip compression is cut short or damaged" in said(make_job, path)


def workbook(member):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, "<xml/>")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (workbook("xl/workbook.xml"), "is an Excel workbook; save it as CSV or Parquet"),
        (workbook("t.csv"), "is a zip archive; unpack it"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old", "an old Excel workbook"),
        (bz2.compress(GOOD.encode()), "is compressed with bzip2; unpack it"),
        (b"%PDF-1.7\n...", "is a PDF, not a table"),
        (bytes(range(256)) * 4, "is a binary file, not a table"),
        (b"PAR1....PAR1", "is a Parquet file; give it a name that ends in .parquet"),
        (GOOD.encode("utf-16"), "is UTF-16 text; set data.encoding = 'utf-16'"),
    ],
    ids=["xlsx", "zip", "xls", "bzip2", "pdf", "junk", "parquet", "utf-16"],
)
def test_what_is_no_table_is_called_by_its_name(make_job, tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert message in said(make_job, path)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_other_encodings_are_read_when_named(make_job, tmp_path, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD.replace("p7,", "Jürgen,").encode(encoding))
    data = load(job_of(make_job, path, encoding=encoding))
    assert "Jürgen" in {*data.parties["active"].train.ids, *data.parties["active"].test.ids}


def test_text_that_is_not_utf_8_is_named_with_its_line(make_job, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD.replace("p7,", "Jürgen,").encode("cp1252"))
    assert "line 9 is not UTF-8 text; set data.encoding" in said(make_job, path)
    path.write_bytes(GOOD.replace("id,a", "id,ä").encode("cp1252"))
    assert "line 1 is not UTF-8 text; set data.encoding" in said(make_job, path)
    assert "no such encoding" in said(make_job, path, encoding="klingon")


def test_one_row_is_the_point(make_job, write_csv):
    assert "has one row" in said(make_job, write_csv("t.csv", "id,a,b,y\np1,1,2,yes\n"))


def test_a_quote_in_a_header_is_one_quote(write_csv):
    path = write_csv("t.csv", 'id,"a ""q""","""><img"\n007,1,2\n')
    frame = read_table(path, text=("id", 'a "q"'))
    assert frame.columns == ["id", 'a "q"', '"><img']
    assert frame.rows() == [("007", "1", 2)]


def test_a_party_says_how_its_own_file_is_written(make_job, write_csv):
    ours = write_csv("ours.csv", "id,y\n" + "".join(f"p{n},{n % 2}\n" for n in range(ROWS)))
    theirs = write_csv("theirs.csv", GERMAN.replace("a;b;y", "a;b;z"))
    own = {"path": str(theirs), "separator": ";", "decimal": ",", "thousands": ".", "columns": ["a", "b"]}
    job = make_job(
        {"name": "csv", "label": "y", "id": "id"},
        parties={"active": "us", "passive": ["them"]},
        party={"us": {"data": {"path": str(ours)}}, "them": {"data": own}},
    )
    data = load(job)
    assert data.parties["them"].shape == (2,)
    # The whole table of the party's own file, what is not used among it.
    assert [(c["name"], c["type"]) for c in data.parties["them"].profile] == [
        ("a", "number"),
        ("b", "number"),
        ("id", "id"),
        ("z", "left out"),
    ]


def test_a_category_that_no_file_has_is_refused(make_job, write_csv):
    assert "data.categorical: no file has a column 'c'" in said(make_job, write_csv("t.csv", GOOD), categorical=["c"])


SMALL = "id,a,b,y\n" + "".join(f"p{n},{n},{n * n},{n % 2}\n" for n in range(10))


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
        (SMALL.replace("p7,", "p2,"), r"t\.csv: id 'p2' stands in rows 3 and 8; keep one"),
        (SMALL.replace("p7,", ","), r"t\.csv: row 8: the id \('id'\) is missing"),
        (SMALL.replace("p3,3,9,1", "p3,3,9,"), r"t\.csv: label column 'y', row 4: the label is missing"),
        (SMALL.replace("p3,3,9,1", "p3,inf,9,1"), r"t\.csv: column 'a', row 4: infinity"),
        (SMALL + "p10,1", r"t\.csv: line 12 has 2 of 4 fields: the file is cut short"),
        (
            SMALL.replace("p3,3,9,1", "p3,3,9,1,1"),
            r"t\.csv: cannot be read as a table: line 5 has 5 fields, the header 4",
        ),
        (SMALL.replace("id,a,b,y", "id,a,a,y"), r"t\.csv: two columns are named 'a'"),
        (SMALL.replace(",", ";"), r"one column only.*set data.separator = ';'"),
        (SMALL.replace(",0\n", ",1\n"), r"label column 'y' has the one value '1'"),
        (SMALL.replace("id,a", "ID,a"), r"no column 'id' for the id; did you mean 'ID'\?"),
        (SMALL.replace(",y\n", ",why\n"), r"no column 'y' for the label"),
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
    refused(make_job, write_csv("t.csv", SMALL), message, **settings)


def test_parties_with_nothing_in_common(make_job, write_csv):
    write_csv("labels.csv", SMALL)
    write_csv("t.csv", SMALL)
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
    test = write_csv("test.csv", SMALL)
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
    path, own = write_csv("t.csv", SMALL), write_csv("own.csv", "x\n1\n2\n")
    refused(
        make_job,
        path,
        "matched by an id column",
        data={"id": None},
        party={"passive_1": {"data": {"path": str(own)}}},
        partition={"columns": {"passive_2": ["a"]}},
    )
    with pytest.raises(InputError, check=Names("party.active.data.path")):
        load(make_job({"name": "csv", "label": "y"}))


def test_a_hold_out_that_leaves_nothing(make_job, write_csv):
    refused(make_job, write_csv("t.csv", SMALL), "leaves none of the 10 rows", data={"holdout": 0.99})


def test_regression_labels_must_be_numbers(make_job, write_csv):
    text = SMALL.replace("p3,3,9,1", "p3,3,9,many")
    refused(make_job, write_csv("t.csv", text), "row 4: 'many' is no number to predict", data={"task": "regression"})
