"""Columns turned into numbers, fitted on training rows, and the column that each feature came from."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import Names

from veracausa.data import overlap, preprocessing
from veracausa.data.load import load, load_new
from veracausa.data.preprocessing import MAX_VALUES, apply, column_count, feature_groups, feature_names, fit
from veracausa.errors import InputError

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@settings(max_examples=50)
@given(st.lists(numbers, min_size=2, max_size=50))
def test_training_rows_end_with_mean_0_and_spread_1(values):
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Float64)})
    fitted = fit(frame, ["x"])
    result = apply(json.loads(json.dumps(fitted)), frame)
    assert result.shape == (len(values), len(set(values)) > 1)
    if np.std(values) > 1e-6 * (1 + abs(np.mean(values))):
        # float32 keeps seven digits of the standardised value.
        assert abs(float(result.mean())) < 1e-4
        assert float(result.std(correction=0)) == pytest.approx(1, abs=1e-4)


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.sampled_from("abc")), min_size=2, max_size=30))
def test_each_category_is_one_of_the_columns(values):
    assume(len(set(values)) > 1)
    frame = pl.DataFrame({"c": pl.Series(values, dtype=pl.String)})
    fitted = fit(frame, ["c"])
    result = apply(fitted, frame)
    assert result.sum(dim=1).tolist() == [1.0] * len(values)
    assert result.shape[1] == len(set(values)) == len(feature_names(fitted))


@pytest.mark.parametrize("values", [[0.1] * 7, ["a"] * 7, [True] * 7, [None] * 7])
def test_a_constant_column_gives_nothing(values):
    fitted = fit(pl.DataFrame({"x": values, "y": range(7)}), ["x", "y"])
    # What it would be in new rows was never learnt: another value there must not move a prediction.
    assert apply(fitted, pl.DataFrame({"x": [9.0], "y": [3]})).tolist() == [[0.0]]
    assert apply(fitted, pl.DataFrame({"y": [3]})).tolist() == [[0.0]]
    assert (feature_names(fitted), feature_groups(fitted), column_count(fitted)) == (("y",), (1,), 1)


def test_a_constant_with_gaps_says_where_they_are():
    frame = pl.DataFrame({"x": ["yes", None, "yes"], "n": [4.0, None, 4.0]})
    assert apply(fit(frame, ["x", "n"]), frame).tolist() == [[1, 0, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0]]


def test_missing_numbers_are_the_mean_and_marked():
    frame = pl.DataFrame({"x": [1.0, None, 3.0, float("nan")]})
    fitted = fit(frame, ["x"])
    assert feature_names(fitted) == ("x", "x: missing")
    assert apply(fitted, frame).tolist() == [[-1, 0], [0, 1], [1, 0], [0, 1]]


def test_missing_first_met_later_adds_no_column():
    fitted = fit(pl.DataFrame({"x": [1.0, 3.0], "c": ["a", "b"]}), ["x", "c"])
    later = apply(fitted, pl.DataFrame({"x": [None, 5.0], "c": [None, "zzz"]}))
    assert later.tolist() == [[0, 0, 0], [3, 0, 0]]


def test_numbers_and_text_are_read_as_training_knew_them():
    fitted = fit(pl.DataFrame({"x": [1, 3], "c": ["1", "b"]}), ["x", "c"])
    assert apply(fitted, pl.DataFrame({"x": ["1", "3"], "c": [1, 2]})).tolist() == [[-1, 1, 0], [1, 0, 0]]
    with pytest.raises(InputError, check=Names("new.csv", "x", "many", "9")):
        apply(fitted, pl.DataFrame({"x": ["1", "many"], "c": [1, 2]}), "new.csv", [3, 8])


def test_rare_values_become_other():
    values = [f"v{n:03}" for n in range(MAX_VALUES)] * 2 + [f"rare{n}" for n in range(5)]
    frame = pl.DataFrame({"c": values})
    fitted = fit(frame, ["c"])
    assert len(feature_names(fitted)) == MAX_VALUES
    result = apply(fitted, frame)
    assert (result.sum(dim=1) == 1).all()
    assert result[-1, -1] == 1
    assert apply(fitted, pl.DataFrame({"c": ["never seen"]}))[0, -1] == 1


def test_booleans_and_dates():
    import datetime

    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 3)]
    frame = pl.DataFrame({"b": [True, False], "d": days})
    assert apply(fit(frame, ["b", "d"]), frame).tolist() == [[0, 1, -1], [1, 0, 1]]


def test_a_column_of_nothing():
    frame = pl.DataFrame({"x": pl.Series([None, None], dtype=pl.Float64), "n": [None, None]})
    assert apply(fit(frame, ["x", "n"]), frame).tolist() == [[], []]


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinity_is_refused_with_its_place(value):
    frame = pl.DataFrame({"x": [1.0, 2.0, value]})
    with pytest.raises(InputError, check=Names("people.csv", "x", "3")):
        fit(frame, ["x"], "people.csv")
    fitted = fit(frame[:2], ["x"])
    with pytest.raises(InputError, match="row 3: infinity"):
        apply(fitted, frame)


def test_unusable_columns_are_refused():
    with pytest.raises(InputError, match="only numbers"):
        fit(pl.DataFrame({"x": [[1], [2]]}), ["x"])
    with pytest.raises(InputError, match="no column 'age'; did you mean 'Age'"):
        apply(fit(pl.DataFrame({"age": [1, 2]}), ["age"]), pl.DataFrame({"Age": [1]}))


COLUMNS = {"passive_1": ["a"], "passive_2": ["b", "c"]}


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    lines = [f"p{n},{n},{100 + n},{'uvw'[n % 3]},{'yes' if n % 4 else 'no'}" for n in range(40)]
    path.write_text("id,a,b,c,y\n" + "\n".join(lines) + "\n")
    return path


def test_a_column_gives_as_many_features_as_are_named_after_it():
    frame = pl.DataFrame({"age": [1.0, None, 3.0], "job": ["a", "b", None], "size": [1, 2, 3]})
    fitted = preprocessing.fit(frame, ["age", "job", "size"])
    groups = preprocessing.feature_groups(fitted)
    assert groups == (0, 0, 1, 1, 1, 2)
    assert len(groups) == len(preprocessing.feature_names(fitted)) == preprocessing.apply(fitted, frame).shape[1]


def test_rare_values_put_together_belong_to_their_column():
    frame = pl.DataFrame({"name": [f"n{row}" for row in range(100)], "size": list(range(100))})
    fitted = preprocessing.fit(frame, ["name", "size"])
    assert preprocessing.feature_groups(fitted) == (0,) * preprocessing.MAX_VALUES + (1,)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_every_part_of_a_table_knows_its_groups(make_job, people, fraction):
    data = load(
        make_job(
            {"name": "csv", "path": str(people), "label": "y", "id": "id", "validation": 0.25},
            partition={"columns": COLUMNS},
            overlap={"fraction": fraction},
        )
    )
    assert data.parties["active"].train.groups is None
    for split in ("train", "validation", "test"):
        assert data.parties["passive_1"].part(split).groups == (0,)
        part = data.parties["passive_2"].part(split)
        assert part.groups == (0, 1, 1, 1)
        assert part.to(torch.device("cpu")).groups == part.none().groups == part.groups
        assert overlap.restrict(part, torch.tensor([0, 2])).groups == part.groups


def test_new_rows_have_the_groups_of_training(make_job, people):
    job = make_job({"name": "csv", "path": str(people), "label": "y", "id": "id"}, partition={"columns": COLUMNS})
    data = load(job)
    fitted = {name: party.preprocessing for name, party in data.parties.items() if party.preprocessing is not None}
    new = load_new(job, people, fitted, data.classes)
    assert new.parties["passive_2"].test.groups == (0, 1, 1, 1)
