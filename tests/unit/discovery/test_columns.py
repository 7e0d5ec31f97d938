"""What is done to columns before a fit, and that it is said."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import Names

from veracausa.data.causal.columns import prepare, standardised
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
    assert said(ready, "d: follows linearly")
    assert prepare(values, NAMES, collinear="drop").kept == (0, 1, 2)
    with pytest.raises(InputError, match="d: follows linearly"):
        prepare(values, NAMES, collinear="refuse")
    values[:, 3] += 1e-3 * np.random.default_rng(1).normal(size=50)
    assert not prepare(values, NAMES).notes


def test_discrete_columns_are_named(values):
    values[:, 0] = values[:, 0] > 3
    values[:, 1] = np.arange(50) % 4
    ready = prepare(values, NAMES)
    assert ready.binary == (True, False, False, False)
    assert said(ready, "a: discrete, 2 different")
    assert said(ready, "b: discrete, 4 different")


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
    assert ready.notes == (
        "60 columns for 30 rows to learn from: edges can not be told apart; give more rows or fewer columns",
    )
    assert len(ready.kept) == 60
    fewer = prepare(many, names, train_rows=30, collinear="drop")
    assert len(fewer.kept) == 29, "standardised columns of 30 rows span 29 dimensions"
    assert len(fewer.notes) == 1
    assert "31 columns take no part" in fewer.notes[0]
    with pytest.raises(InputError, check=Names("60", "30")):
        prepare(many, names, train_rows=30, collinear="refuse")
