"""Ids are compared in one normal form; what cannot be an id is refused by its row's number."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import Names

from veracausa.data.ids import KeyRules, normal_keys, texts
from veracausa.errors import InputError


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (" 17 ", "17"),
        ("17.0", "17"),
        ("-3.00", "-3"),
        ("ＡＢ１", "AB1"),
        ("é", "é"),
        ("x\u00a0", "x"),
    ],
)
def test_written_otherwise_and_still_the_same(one: str, other: str) -> None:
    assert KeyRules().normal(one) == KeyRules().normal(other)


@pytest.mark.parametrize(("one", "other"), [("007", "7"), ("007.0", "7"), ("1.5", "1"), ("a.0", "a"), ("ab", "AB")])
def test_not_the_same(one: str, other: str) -> None:
    assert KeyRules().normal(one) != KeyRules().normal(other)


def test_options_say_what_is_the_same() -> None:
    assert KeyRules(case_fold=True).normal("Straße") == KeyRules(case_fold=True).normal("STRASSE")
    assert KeyRules(whole_numbers=False).normal("1.0") == "1.0"


@given(st.text(), st.booleans(), st.booleans())
def test_the_normal_form_of_a_normal_form_is_itself(text: str, case_fold: bool, whole: bool) -> None:
    rules = KeyRules(case_fold, whole)
    assert rules.normal(rules.normal(text)) == rules.normal(text)


def test_two_rows_that_become_the_same_are_named_by_number_and_not_by_id() -> None:
    with pytest.raises(InputError, check=Names("t.csv", "2", "4")) as error:
        normal_keys(["1", "secret", "3", " secret"], KeyRules(), "t.csv")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("nothing", ["", "  ", "\u3000"])
def test_an_empty_id_is_refused(nothing: str) -> None:
    with pytest.raises(InputError, match=r"t\.csv: row 2: the id is empty"):
        normal_keys(["1", nothing], KeyRules(), "t.csv")


def test_no_ids_at_all_are_refused() -> None:
    with pytest.raises(InputError, match="has no ids"):
        normal_keys([], KeyRules(), "t.csv")


def test_a_column_of_numbers_with_a_gap_is_still_one_of_integers() -> None:
    assert texts(pl.Series([1.0, None, float("nan"), 3.0])) == ["1", None, None, "3"]
    assert texts(pl.Series([1.5, 2.0])) == ["1.5", "2.0"]
