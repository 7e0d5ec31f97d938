"""How columns are spread, read back from the features: as the table had it, and without missing values."""

from __future__ import annotations

import polars as pl
import pytest
import torch

from veracausa.data import preprocessing
from veracausa.data.distributions import BINS, distributions
from veracausa.data.vertical import Part

FRAME = pl.DataFrame(
    {
        "age": [float(20 + i) for i in range(60)],
        "gain": [None if i % 3 == 0 else (0.0 if i % 3 == 1 else 99999.0) for i in range(60)],
        "job": [None if i == 0 else "abcdefg"[min(i % 10, 6)] for i in range(60)],
        "same": [7] * 60,
    }
)


def spread_of(frame: pl.DataFrame) -> dict[str, dict]:
    fitted = preprocessing.fit(frame, frame.columns)
    features = preprocessing.apply(fitted, frame)
    return distributions(Part(frame.height, features), fitted)


def test_numbers_have_their_ends_and_every_row_in_a_bin() -> None:
    found = spread_of(FRAME)
    age = found["age"]
    assert (age["low"], age["high"], len(age["bins"])) == (
        pytest.approx(20, abs=1e-2),
        pytest.approx(79, abs=1e-2),
        BINS,
    )
    assert sum(age["bins"]) == 60
    # What is missing counts nowhere, and rounding is not shown as a value.
    assert found["gain"] == {"bins": [20, *[0] * (BINS - 2), 20], "low": 0.0, "high": 99999.0}


def test_categories_have_their_counts_and_the_rest_together() -> None:
    job = spread_of(FRAME)["job"]
    assert job["common"][0] == ["g", 24]
    assert sum(count for _, count in job["common"]) + job["others"] == 59


def test_rare_words_that_were_put_together_are_among_the_others() -> None:
    frame = pl.DataFrame({"word": [f"w{i % 90}" for i in range(900)]})
    found = spread_of(frame)["word"]
    assert sum(count for _, count in found["common"]) + found["others"] == 900


def test_constants_pictures_and_rows_elsewhere_have_none() -> None:
    assert "same" not in spread_of(FRAME)
    assert distributions(Part(4, torch.zeros(4, 1, 2, 2)), None) == {}
    assert distributions(Part(4), {"columns": []}) == {}
