"""What a party's own table becomes at its site: categories, scales, gaps, and columns that are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from refusals import Names

from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.moments.expansion import column_kinds
from veracausa.errors import InputError
from veracausa.federation.columns import OwnDiscoveryTable, SiteColumns

ROWS = 60


def table(path: Path) -> Path:
    at = np.arange(ROWS)
    frame = {
        "id": [f"p{n}" for n in at],
        "code": at % 4,
        "grade": np.array(["low", "mid", "high"])[at % 3],
        "sex": np.array(["f", "m"])[at % 2],
        "size": [None if n % 7 == 0 else n * 0.37 % 5 for n in at],
        "born": [f"19{n % 90 + 10}-02-03" for n in at],
        "street": [f"street {n}" for n in at],
        "number": at + 1000,
    }
    pl.DataFrame(frame, strict=False).write_csv(path)
    return path


def columns(tmp_path: Path, data: dict[str, Any] | None = None, named: tuple[str, ...] = (), **own: Any) -> SiteColumns:
    job = DiscoveryJob(method="moments", data={"on": "id", **(data or {})}, parties={"lab": named, "bank": ()})
    given = OwnDiscoveryTable(path=str(table(tmp_path / "own.csv")), **own)
    return SiteColumns(job, given, "lab", tmp_path)


def kinds(site: SiteColumns) -> dict[str, str]:
    data = site.data(torch.arange(ROWS))
    return dict(zip(data.names, column_kinds(data.values, data.names, data.nominal), strict=True))


def test_words_are_categories_and_names_are_left_out(tmp_path: Path) -> None:
    site = columns(tmp_path)
    assert kinds(site) == {"code": "number", "grade": "nominal", "sex": "binary", "size": "number"}
    said = " ".join(site.notes)
    assert all(f"{name}: left out" in said for name in ("born", "street", "number"))


def test_gaps_stay(tmp_path: Path) -> None:
    data = columns(tmp_path).data(torch.arange(ROWS))
    assert np.isnan(data.values[:, data.names.index("size")]).sum() == len(range(0, ROWS, 7))


def test_rows_that_lack_a_value_can_be_dropped(tmp_path: Path) -> None:
    job = DiscoveryJob(method="vfedcd", data={"on": "id"}, parties={"lab": ("size",), "bank": ()})
    site = SiteColumns(job, OwnDiscoveryTable(path=str(table(tmp_path / "own.csv"))), "lab", tmp_path, True)
    assert site.count == ROWS - len(range(0, ROWS, 7))
    assert not np.isnan(site.data(torch.arange(site.count)).values).any()


def test_codes_and_scales_are_the_partys_word(tmp_path: Path) -> None:
    site = columns(tmp_path, categorical=("code",), ordinal={"grade": ("low", "mid", "high")})
    assert kinds(site) == {"code": "nominal", "grade": "number", "sex": "binary", "size": "number"}
    data = site.data(torch.arange(ROWS))
    assert data.values[:3, data.names.index("grade")].tolist() == [0.0, 1.0, 2.0]


def test_the_job_may_say_it_of_everybody(tmp_path: Path) -> None:
    """Also of columns that are not this party's."""
    site = columns(tmp_path, {"categorical": ["code", "a column of the bank"], "ordinal": ["grade"]})
    assert kinds(site)["code"] == "nominal"
    assert kinds(site)["grade"] == "number"
    assert "street" in columns(tmp_path, {"categories": 100}).names
    assert "street" in columns(tmp_path, categories=100).names


@pytest.mark.parametrize("own", [{"categorical": ("cod",)}, {"ordinal": {"cod": ()}}])
def test_a_party_that_names_no_column_of_its_own(tmp_path: Path, own: dict[str, Any]) -> None:
    with pytest.raises(InputError, check=Names("own.csv", "cod", "code")):
        columns(tmp_path, **own)


def test_a_named_column_is_not_left_out_in_silence(tmp_path: Path) -> None:
    with pytest.raises(InputError, check=Names("own.csv", "born", "dates")):
        columns(tmp_path, named=("size", "born"))
    assert columns(tmp_path, named=("size", "sex")).names == ("size", "sex")


def test_rows_are_known_by_their_ids(tmp_path: Path) -> None:
    assert columns(tmp_path).row_names(torch.tensor([3, 1])) == [b"p3", b"p1"]
