"""What is done to columns before a fit, and that it is said."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import Names

from veracausa.data.causal.columns import arbitrary_order, prepare, standardised
from veracausa.errors import InputError


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).normal(3, 2, (50, 4))


NAMES = ("a", "b", "c", "d")


def said(prepared, word):
    return [note for note in prepared.notes if word in note]


def test_scales_come_from_the_training_rows(values):
    ready = prepare(values, NAMES, train_rows=40)
    assert np.allclose(ready.values[:40].mean(axis=0), 0)
    assert np.allclose(ready.values[:40].std(axis=0), 1)
    assert np.allclose(ready.values * ready.scale + ready.mean, values)
    assert np.array_equal(prepare(values, NAMES, standardise=False).values, values)
    assert not ready.notes


def test_the_callers_array_is_left_alone(values):
    before = values.copy()
    values[3, 1] = before[3, 1] = np.nan
    prepare(values, NAMES)
    assert np.array_equal(values, before, equal_nan=True)


def test_missing_values(values):
    values[3, 1] = np.nan
    ready = prepare(values, NAMES, standardise=False)
    assert ready.values[3, 1] == np.nanmedian(values[:, 1])
    assert said(ready, "b: 1 missing values set to the median")
    assert len(prepare(values, NAMES, missing="drop").values) == 49
    with pytest.raises(InputError, check=Names("b", "1", "50")):
        prepare(values, NAMES, missing="refuse")
    values[:, 1] = np.nan
    with pytest.raises(InputError, match="'b' holds no value"):
        prepare(values, NAMES)


def test_missing_values_stay_for_sums_over_pairs(values):
    values[:7, 1] = np.nan
    ready = prepare(values, NAMES, missing="pairwise")
    assert np.array_equal(ready.values, values, equal_nan=True)
    assert ready.notes == ("b: 7 missing values; sums use the rows where both columns have one",)
    values[40:, 2] = np.nan
    assert prepare(values, NAMES, missing="pairwise").notes[0].startswith("missing values: b 7, c 10; sums")
    values[7:, 1] = 1.0
    assert prepare(values, NAMES, missing="pairwise").kept == (0, 2, 3), "constant where it is there"


def test_missing_categories_become_the_commonest(values):
    values[:, 1] = np.arange(50) % 5 // 2  # 0, 0, 1, 1, 2
    values[:10, 1] = 2
    values[10:12, 1] = np.nan
    ready = prepare(values, NAMES, standardise=False, nominal=["b"])
    assert set(np.unique(ready.values[:, 1])) == {0, 1, 2}, "a median of codes would be no category"
    assert said(ready, "b: 2 missing values set to the commonest category")
    assert ready.nominal == ("b",)
    assert not said(ready, "discrete")


def test_categories_that_are_all_too_rare_take_no_part(values):
    values[:, 1] = np.where(np.arange(50) < 44, 0, np.arange(50))  # 44 rows of one category, 6 of six others
    assert prepare(values, NAMES, nominal=["b"]).kept == (0, 1, 2, 3)
    assert prepare(values, NAMES, nominal=["b"], category_rows=6).kept == (0, 1, 2, 3), "the rare ones together"
    rare = prepare(values, NAMES, nominal=["b"], category_rows=7)
    assert rare.kept == (0, 2, 3)
    assert said(rare, "b: no two of its categories have 7 rows each, takes no part")


def test_a_scale_of_categories_is_warned_of():
    assert arbitrary_order(()) == ()
    one, many = arbitrary_order(["city"])[0], arbitrary_order(["city", "ward"])[0]
    assert one.startswith("city holds")
    assert many.startswith("city, ward hold")
    assert "moments" in one


def test_constant_columns_take_no_part(values):
    values[:, 2] = 7.1
    ready = prepare(values, NAMES)
    assert ready.kept == (0, 1, 3)
    assert said(ready, "c: constant")
    with pytest.raises(InputError, match="'c' is constant"):
        prepare(values, NAMES, constant="refuse")
    with pytest.raises(InputError, match="every column is constant"):
        prepare(np.ones((5, 2)), ("a", "b"))


def test_collinear_columns_are_named(values):
    values[:, 3] = 2 * values[:, 0] - values[:, 1] + 5
    ready = prepare(values, NAMES)
    assert ready.kept == (0, 1, 2, 3)
    assert len(ready.warnings) == 1
    assert ready.warnings[0].startswith("d follows linearly")
    fewer = prepare(values, NAMES, collinear="drop")
    assert fewer.kept == (0, 1, 2)
    assert said(fewer, "d follows linearly")
    assert not fewer.warnings
    with pytest.raises(InputError, match="d follows linearly"):
        prepare(values, NAMES, collinear="refuse")
    values[:, 3] += 1e-3 * np.random.default_rng(1).normal(size=50)
    assert not prepare(values, NAMES).warnings


def test_many_collinear_columns_are_one_line_and_copies_another(values):
    more = np.column_stack([values, 3 - 2 * values[:, 1], values[:, :2].sum(axis=1), *[values @ w for w in WEIGHTS]])
    names = (*NAMES, "twin", "sum", *(f"mix{at}" for at in range(len(WEIGHTS))))
    copied, follow = prepare(more, names).warnings
    assert copied.startswith("twin repeats b")
    assert follow.startswith("sum, mix0, mix1")
    assert "and 5 more follow" in follow
    dropped = prepare(more, names, collinear="drop")
    assert dropped.names == NAMES


WEIGHTS = np.random.default_rng(3).normal(size=(12, 4))


def test_too_few_rows_are_warned_of(values):
    assert not prepare(values, NAMES).warnings
    assert prepare(values[:12], NAMES).warnings[0].startswith("12 rows are too few")


def test_discrete_columns_are_named(values):
    values[:, 0] = values[:, 0] > 3
    values[:, 1] = np.arange(50) % 4
    ready = prepare(values, NAMES)
    assert ready.binary == (True, False, False, False)
    assert ready.notes[0].startswith("discrete, fitted as a number: b (4 different values)")
    assert "data.categorical" in ready.notes[0]
    values[:, 2] = np.arange(50) % 3
    ready = prepare(values, NAMES)
    assert len(ready.notes) == 1, "one line for all of them"
    assert "b (4 different values), c (3 different values)" in ready.notes[0]
    assert not prepare(values, NAMES, nominal=["b", "c"]).notes


def test_infinite_values_are_refused(values):
    values[0, 3] = np.inf
    with pytest.raises(InputError, match="'d' holds an infinite value"):
        prepare(values, NAMES)


def test_a_constant_is_only_centred():
    table, mean, scale = standardised(np.full((4, 1), 5.0))
    assert table.tolist() == [[0.0]] * 4
    assert (mean[0], scale[0]) == (5.0, 1.0)


def test_what_may_only_name_rows_is_asked_about(values):
    values[:, 1] = np.random.default_rng(1).permutation(50) + 1000
    values[:, 2] = np.arange(50) // 2
    ready = prepare(values, NAMES)
    assert said(ready, "whole number in every row") == [
        "b: a different whole number in every row; if it only names the rows, leave it out (--set data.id=b)"
    ]
    assert ready.kept == (0, 1, 2, 3)
    assert not said(prepare(values[:10], NAMES), "whole number in every row")


def test_as_many_columns_as_rows_are_one_sentence():
    many = np.random.default_rng(0).normal(size=(40, 60))
    names = tuple(f"x{at}" for at in range(60))
    ready = prepare(many, names, train_rows=30)
    told = [warning for warning in ready.warnings if "60 columns for 30 rows" in warning]
    assert len(told) == 1
    assert "data.columns" in told[0]
    assert not [warning for warning in ready.warnings if "linearly" in warning]
    assert len(ready.kept) == 60
    fewer = prepare(many, names, train_rows=30, collinear="drop")
    assert len(fewer.kept) == 29, "standardised columns of 30 rows span 29 dimensions"
    assert [warning for warning in fewer.warnings if "31 columns take no part" in warning]
    with pytest.raises(InputError, check=Names("60", "30")):
        prepare(many, names, train_rows=30, collinear="refuse")
