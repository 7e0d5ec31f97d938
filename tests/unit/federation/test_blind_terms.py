"""What a party is told of a blind training before it says yes."""

from __future__ import annotations

from typing import Any

import pytest

from veracausa.config import Job, load_job
from veracausa.federation.consent import UNENCRYPTED, describe_training

JOB: dict[str, Any] = {
    "name": "risk",
    "data": {"name": "csv", "label": "y", "id": "id"},
    "training": {"protocol": "blind"},
    "parties": {"active": "bank", "passive": ["lab", "shop"]},
}


def job(**settings: Any) -> Job:
    return load_job({**JOB, **settings})


def said(me: str = "lab", rows: int | None = 24887, numbers: int | None = 2, **settings: Any) -> dict[str, str]:
    return dict(describe_training(job(**settings), me, rows, numbers))


def test_one_line_says_what_crosses() -> None:
    crosses = said(blind={"epsilon": 4})["crosses"]
    assert crosses.startswith("sums over up to 24,887 rows, epsilon = 4 (delta = 1e-05); at prediction 2 numbers a row")
    assert "no differential privacy" in said()["crosses"]
    assert "1 number a row" in said(numbers=1)["crosses"]


def test_a_site_that_knows_neither_rows_nor_classes_says_the_rule() -> None:
    crosses = said(rows=None, numbers=None)["crosses"]
    assert "sums over all training rows" in crosses
    assert "as many numbers a row as there are classes, less one" in crosses


def test_one_passive_party_is_told_that_it_is_opened_alone() -> None:
    assert "summed over all passive parties" in said()["crosses"]
    alone = said(parties={"active": "bank", "passive": ["lab"]})["crosses"]
    assert "of lab alone" in alone


@pytest.mark.parametrize(("me", "whose"), [("lab", "bank's"), ("bank", "yours")])
def test_labels_are_told_with_their_account(me: str, whose: str) -> None:
    assert said(me)["labels"].startswith(f"none: {whose}")
    private = said(me, blind={"labels": "private", "label_epsilon": 2})["labels"]
    assert whose in private
    assert "epsilon = 2 a label" in private
    assert said(me, blind={"labels": "shared"})["labels"].startswith("SHARED")


def test_the_map_is_a_partys_own() -> None:
    assert said()["features"].startswith("auto, by the job")
    own = said(party={"lab": {"features": {"name": "splines"}}})["features"]
    assert own.startswith("splines, by your party.toml")


def test_a_second_head_is_named_where_it_is_allowed() -> None:
    assert said()["second heads"].startswith("refused")
    assert said(party={"lab": {"second_head": True}})["second heads"].startswith("ALLOWED")


def test_an_unencrypted_run_is_said_in_capitals() -> None:
    assert said(blind={"encryption": "none"})["encryption"] == UNENCRYPTED
    assert said()["encryption"].startswith("bfv")


def test_split_training_is_described_as_before() -> None:
    split = {"model": {"name": "mlp"}, "training": {"protocol": "split"}}
    assert "defense" in said(**split)
    assert "crosses" not in said(**split)
