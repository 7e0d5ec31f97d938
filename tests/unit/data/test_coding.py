"""What columns of words, codes, dates and names become, in one table and in one file a party."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from refusals import Names

from veracausa.data.causal import load_causal
from veracausa.data.causal.coding import natural_order
from veracausa.discovery.job import DiscoveryJob, load_columns
from veracausa.errors import InputError

ROWS = 40
CITIES = ["Rome", "Bonn", "Oslo", "Bonn"]
FRAME = pl.DataFrame(
    {
        "city": CITIES * 10,
        "smokes": ["yes", "no"] * 20,
        "ward": [3, 1, 7, 1] * 10,
        "size": ["small", "large", "medium", "small"] * 10,
        "well": [True, False] * 20,
        "visits": [0, 3, 1, 12] * 10,
        "x": np.linspace(0, 1, ROWS),
    }
)
NAMES = [f"p{row}" for row in range(ROWS)]


@pytest.fixture
def path(tmp_path):
    FRAME.write_csv(tmp_path / "t.csv")
    return tmp_path / "t.csv"


def read(path, **settings):
    return load_causal("table", path=str(path), **settings)


def column(data, name):
    return data.values[:, data.names.index(name)]


def test_three_words_are_nominal_two_are_binary_and_numbers_stay(path):
    data = read(path)
    assert data.nominal == ("city", "size")
    assert column(data, "smokes")[:2].tolist() == [1, 0]
    assert column(data, "well")[:2].tolist() == [1, 0]
    assert column(data, "visits")[:4].tolist() == [0, 3, 1, 12]
    assert len(set(column(data, "city"))) == 3
    said = [note for note in data.notes if "without an order" in note]
    assert len(said) == 1, "one line for all of them"
    assert "city (Bonn, Oslo, Rome)" in said[0]
    assert "--set data.ordinal=city" in said[0]


def test_codes_are_categories_where_that_is_said(path):
    assert "ward" not in read(path).nominal
    data = read(path, categorical="ward,well")
    assert data.nominal == ("city", "ward", "size"), "two codes are binary"
    assert len(set(column(data, "ward"))) == 3


def test_words_are_a_scale_where_that_is_said(path):
    data = read(path, ordinal="size")
    assert data.nominal == ("city",)
    assert column(data, "size")[:4].tolist() == [2, 0, 1, 2], "in natural order: large, medium, small"
    said = next(note for note in data.notes if note.startswith("size"))
    assert '--set data.ordinal=\'{"size"=["large", "medium", "small"]}\'' in said
    data = read(path, ordinal={"size": ["small", "medium", "large", "huge"]})
    assert column(data, "size")[:4].tolist() == [0, 2, 1, 0]
    assert column(read(path, ordinal=["visits"]), "visits")[:4].tolist() == [0, 3, 1, 12], "numbers are a scale"
    with pytest.raises(InputError, check=Names("data.ordinal", "size", "medium")):
        read(path, ordinal={"size": ["small", "large"]})
    with pytest.raises(InputError, match="has a word twice"):
        read(path, ordinal={"size": ["small", "large", "medium", "small"]})
    with pytest.raises(InputError, match="no column 'sizes'; did you mean 'size'"):
        read(path, ordinal="sizes")


def test_numbers_in_words_are_ordered_by_size():
    assert natural_order(["grade 10", "grade 9", "grade 2.5"]) == ["grade 2.5", "grade 9", "grade 10"]
    assert natural_order(["b", "10", "a", "9", "3+"]) == ["3+", "9", "10", "a", "b"]


def test_a_scale_may_have_a_word_among_its_numbers(tmp_path):
    frame = FRAME.select("x").with_columns(children=pl.Series(["0", "1", "2", "10", "3"] * 7 + ["0"] * 4 + ["12+"]))
    frame.write_csv(tmp_path / "t.csv")
    with pytest.raises(InputError, check=Names("children", "12", "data.categorical=children")):
        read(tmp_path / "t.csv")
    data = read(tmp_path / "t.csv", ordinal="children")
    assert column(data, "children")[[0, 3, 4, -1]].tolist() == [0, 4, 3, 5]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_missing_values_are_nan_in_words_and_numbers(tmp_path, suffix):
    gap = pl.int_range(pl.len()) == 5
    frame = FRAME.with_columns(pl.when(gap).then(None).otherwise(pl.all()).name.keep())
    path = tmp_path / f"t.{suffix}"
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    data = read(path, categorical="ward", ordinal="size")
    assert np.isnan(data.values).sum(axis=0).tolist() == [1] * len(data.names)
    assert np.isnan(data.values[5]).all()
    assert data.nominal == ("city", "ward")


def test_what_can_be_no_attribute_is_left_out_with_the_remedy(tmp_path):
    days = [f"2024-01-{1 + row % 5:02d}" for row in range(ROWS)]
    frame = FRAME.select("x", "city").with_columns(
        name=pl.Series(NAMES),
        team=pl.Series([f"t{row // 4}" for row in range(ROWS)]),
        visit=pl.Series(days),
        empty=pl.Series([None] * ROWS, dtype=pl.String),
    )
    frame.write_csv(tmp_path / "t.csv")
    data = read(tmp_path / "t.csv", categories=4)
    assert data.names == ("x", "city")
    left = {note.split(":")[0]: note for note in data.notes if "left out" in note}
    assert set(left) == {"name", "team", "visit", "empty"}
    assert "data.categories" not in left["name"], "another word in every row is a name"
    assert "--set data.categories=10 keeps it" in left["team"]
    assert "dates, such as '2024-01-01'" in left["visit"], "few different dates are still no categories"
    assert "data.categories" not in left["visit"]
    kept = read(tmp_path / "t.csv", categorical="visit", categories=40)
    assert kept.nominal == ("city", "name", "team", "visit")
    frame.with_columns(day=pl.Series(days).str.to_date()).write_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").names == ("x", "city", "team")


def test_all_that_can_be_no_attribute_is_refused_in_one_sentence(tmp_path):
    days = [f"{1 + row % 28}.1.2024" for row in range(ROWS)]
    frame = FRAME.select("x", "city").with_columns(name=pl.Series(NAMES), visit=pl.Series(days))
    frame.write_csv(tmp_path / "t.csv")
    with pytest.raises(InputError, check=Names("name", "visit", "data.columns=x,city", "data.id=name")):
        read(tmp_path / "t.csv", columns="x,name,city,visit")
    with pytest.raises(InputError, check=Names("city", "data.categories=3")):
        read(tmp_path / "t.csv", columns="x,city", categories=2)


def test_a_file_a_party_keeps_categories_gaps_and_settings(tmp_path):
    ids = pl.Series("id", NAMES)
    bank = FRAME.select("city", "x", "ward").with_columns(ids)
    clinic = FRAME.select("size", "visits").with_columns(ids, name=pl.Series(NAMES).reverse())
    clinic = clinic.with_columns(pl.when(pl.int_range(pl.len()) < 3).then(None).otherwise("size").alias("size"))
    bank.write_csv(tmp_path / "bank.csv")
    clinic.reverse().write_csv(tmp_path / "clinic.csv")
    files = {party: str(tmp_path / f"{party}.csv") for party in ("bank", "clinic")}

    def of(**settings):
        return load_columns(DiscoveryJob(data={"files": files, "on": "id", **settings}, truth=[("x", "visits")]))

    data, parties = of()
    assert parties == {"bank": ("city", "x", "ward"), "clinic": ("size", "visits")}
    assert data.nominal == ("city", "size"), "a known truth leaves them nominal"
    assert np.isnan(column(data, "size")[:3]).all()
    assert column(data, "visits")[:4].tolist() == [0, 3, 1, 12]
    assert of(categorical=["ward"], ordinal=["size"])[0].nominal == ("city", "ward")
    assert of(columns=["x", "visits"])[1] == {"bank": ("x",), "clinic": ("visits",)}
    with pytest.raises(InputError, check=Names("name", "clinic.csv", "data.id=name")):
        of(columns=["x", "name"])
    assert "name: left out" in " ".join(data.notes)
    assert "name: left out" not in " ".join(of(id="name")[0].notes)
    with pytest.raises(InputError, match="no column 'wards'; did you mean 'ward'"):
        of(categorical=["wards"])
    with pytest.raises(InputError, match="no such setting; did you mean 'ordinal'"):
        of(ordinall=["size"])
