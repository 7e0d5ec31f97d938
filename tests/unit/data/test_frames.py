"""Frames and arrays that were given in Python, as columns to discover a graph in."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from refusals import Names

from veracausa.data.causal import CausalData
from veracausa.data.causal.frames import as_causal
from veracausa.discovery.discover import discover
from veracausa.errors import InputError

ROWS = 24
X = np.random.default_rng(0).normal(size=(ROWS, 2))
CITIES = ["Rome", "Bonn", "Oslo", None] * 6
DAYS = [date(2024, 1, 1) + timedelta(days=row % 3) for row in range(ROWS)]


def column(data, name):
    return data.values[:, data.names.index(name)]


def test_an_array_is_taken_as_it_is():
    data = as_causal(X)
    assert data.names == ("x0", "x1")
    assert np.array_equal(data.values, X)
    assert not data.nominal
    with pytest.raises(InputError, match="give words in a pandas or polars frame"):
        as_causal([["a", "b"]])


def test_data_that_were_read_before_keep_nominal_and_their_own_notes():
    read = CausalData(X, ("a", "b"), notes=("said elsewhere",), nominal=("b",))
    assert as_causal(read).nominal == ("b",)
    assert as_causal(read).notes == ()


def test_words_of_a_polars_frame_are_categories():
    frame = pl.DataFrame(
        {
            "a": X[:, 0],
            "city": CITIES,
            "kind": pl.Series(["u", "v", "w"] * 8, dtype=pl.Categorical),
            "level": pl.Series(["u", "v", "w"] * 8, dtype=pl.Enum(["w", "v", "u"])),
            "well": [True, False, None] * 8,
            "smokes": ["no", "yes"] * 12,
            "count": pl.Series([1, 2, None] * 8, dtype=pl.UInt8),
            "written": [f"{value:.3f}" for value in X[:, 1]],
        }
    )
    data = as_causal(frame)
    assert data.names == tuple(frame.columns)
    assert data.nominal == ("city", "kind", "level")
    assert np.isnan(column(data, "city")).tolist() == [city is None for city in CITIES]
    assert column(data, "well")[:2].tolist() == [1, 0]
    assert np.isnan(column(data, "well")[2])
    assert column(data, "smokes")[:2].tolist() == [0, 1]
    assert np.isnan(column(data, "count")[2])
    assert np.allclose(column(data, "written"), X[:, 1], atol=1e-3), "text that reads as numbers is numbers"


def test_names_dates_and_row_numbers_of_a_frame_are_left_out():
    names = [f"p{row}" for row in range(ROWS)]
    frame = pl.DataFrame({"name": names, "a": X[:, 0], "day": DAYS, "row": range(1, ROWS + 1), "b": X[:, 1]})
    data = as_causal(frame)
    assert data.names == ("a", "b")
    assert [note.split(":")[0] for note in data.notes] == ["name", "day", "row"]
    assert "--set" not in " ".join(data.notes), "nobody types an option in Python"
    with pytest.raises(InputError, check=Names("name", "row")):
        as_causal(frame.select("a", "name", "row"))
    with pytest.raises(InputError, check=Names("name", "day", "parties")):
        discover(frame, {"p": ["name", "a", "day"], "q": ["b"]})
    assert as_causal(frame, named=["row"]).names == ("a", "row", "b"), "numbers that are asked for are numbers"


def test_a_frame_that_names_a_column_twice_is_refused():
    class Twice:
        columns = ("a", "a")

    with pytest.raises(InputError, match="two columns are named 'a'"):
        as_causal(Twice())


def test_other_frames_hold_pythons_own_objects():
    class Other:
        """A frame that is neither of pandas nor of polars."""

        def __init__(self, **columns):
            self.held = columns
            self.columns = list(columns)

        def __getitem__(self, name):
            return Held(self.held[name])

    class Held:
        def __init__(self, items):
            self.items = items

        def to_numpy(self):
            return np.array([*self.items, None], dtype=object)[:-1]

    frame = Other(a=[1, 2.5, None], b=[Decimal("0.5"), 2, 3], c=[True, None, False], d=["u", "v", "w"], e=[1, "4A", 2])
    data = as_causal(frame)
    assert data.names == ("a", "b", "c", "d", "e")
    assert column(data, "b").tolist() == [0.5, 2, 3]
    assert np.isnan(column(data, "c")[1])
    assert data.nominal == ("d", "e")
    with pytest.raises(InputError, match="'f' holds lists"):
        as_causal(Other(a=[1, 2], f=[[1], [2, 3]]))


def test_pandas_columns_of_every_kind():
    pandas = pytest.importorskip("pandas")
    sizes = pandas.CategoricalDtype(["small", "medium", "large"], ordered=True)
    frame = pandas.DataFrame(
        {
            "a": X[:, 0],
            "city": CITIES,
            "kind": pandas.Categorical(["u", "v", None] * 4 + ["w"] * 12),
            "size": pandas.Series(["large", "small", None, "medium"] * 6, dtype=sizes),
            "codes": pandas.Categorical([7, 3, 5] * 8),
            "well": pandas.array([True, False, None] * 8, dtype="boolean"),
            "count": pandas.array([1, 2, None] * 8, dtype="Int64"),
            "whole": pandas.array([1, 2, 5] * 8, dtype="Int64"),
            "text": pandas.array(["no", "yes", None] * 8, dtype="string"),
            "mixed": pandas.Series([1, "4A", 2.5, None] * 6, dtype=object),
            "object": pandas.Series([Decimal(1), 2, None, 2.5] * 6, dtype=object),
            "row": range(ROWS),
            "day": pandas.to_datetime(DAYS),
            "zone": pandas.to_datetime(DAYS).tz_localize("Europe/Berlin"),
            "stamp": pandas.Series([datetime(2024, 1, 1), None] * 12, dtype=object),
            "lasts": pandas.to_timedelta([1, 2, 3] * 8, unit="h"),
            "empty": [np.nan] * ROWS,
        }
    )
    data = as_causal(frame)
    kept = ("a", "city", "kind", "size", "codes", "well", "count", "whole", "text", "mixed", "object")
    assert data.names == kept
    assert {note.split(":")[0] for note in data.notes if "left out" in note} == set(frame.columns) - set(kept)
    assert data.nominal == ("city", "kind", "codes", "mixed")
    assert np.array_equal(np.isnan(data.values), frame[list(kept)].isna().to_numpy())
    assert column(data, "size")[[0, 1, 3]].tolist() == [2, 0, 1], "an ordered category is a scale"
    assert column(data, "well")[:2].tolist() == [1, 0]
    assert np.array_equal(column(data, "a"), X[:, 0])
