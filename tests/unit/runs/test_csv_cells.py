"""A cell that a spreadsheet would run is written as text, a number stays one, and what is read is what was meant."""

from __future__ import annotations

import csv

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veracausa.discovery.job import read_edges
from veracausa.runs.atomic import as_written, safe
from veracausa.training.predict import Predictions


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\tx", "\rx", "'=1"])
def test_formulas_get_an_apostrophe(text):
    assert safe(text) == f"'{text}"
    assert as_written(safe(text)) == text


@pytest.mark.parametrize("value", ["-1.5", "+3", "-1e-3", "a=b", "", "'quoted'", -1.5, None, 7])
def test_numbers_and_other_words_stay(value):
    assert safe(value) == value


@given(st.text(alphabet="'=+-@\t1.5ax", max_size=6))
def test_what_is_written_is_read_as_it_was(text):
    assert as_written(str(safe(text))) == text


def test_predictions_can_be_opened_in_a_spreadsheet(tmp_path):
    predictions = Predictions(
        ("=1+1", "-7", "x"), ("@no", "yes"), torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), {}
    )
    predictions.to_csv(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[:2] for row in rows[1:]] == [["'=1+1", "'@no"], ["-7", "yes"], ["x", "yes"]]
    assert [as_written(row[0]) for row in rows[1:]] == list(predictions.ids)
    predictions.to_csv(tmp_path / "raw.csv", raw=True)
    assert pl.read_csv(tmp_path / "raw.csv")["id"].to_list() == list(predictions.ids)
    values = Predictions(("=a",), (), torch.tensor([-1.5]), {})
    values.to_csv(tmp_path / "v.csv")
    assert (tmp_path / "v.csv").read_text() == "id,prediction\n'=a,-1.5\n"


def test_the_edges_of_a_run_are_read_by_their_real_names(tmp_path):
    (tmp_path / "edges.csv").write_text("cause,effect\n'=age,bmi\n")
    assert read_edges(tmp_path / "edges.csv") == [("=age", "bmi")]
    (tmp_path / "own.csv").write_text("source,target\n'=age,bmi\n")
    assert read_edges(tmp_path / "own.csv") == [("'=age", "bmi")]
