"""The page of a blind run: what crossed, what was opened, the account, features and head."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from veracausa.report.blind_section import OTHER, account, blind_section, crossed_sentence, opened, sent_in_words
from veracausa.report.compare import compare, write_comparison
from veracausa.report.run_page import key_numbers, write_report
from veracausa.runs.folder import write_json
from veracausa.runs.record import read_run

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"
TOLD: dict[str, Any] = {
    "rows": 24887,
    "predicted": {"validation": 0, "test": 6222},
    "numbers": 1,
    "summed": True,
    "encryption": "bfv",
    "epsilon": 4.0,
    "delta": 1e-5,
    "noise": 12.5,
    "labels": "none",
    "ridge": 31.6,
    "ridge_by": "gcv",
    "step": 0.01,
    "calibration": {"temperature": 0.31},
    "features": {"passive_1": {"name": "splines", "width": 64, "notes": ["job: 3 rare words merged"]}},
    "seconds": {"features": 0.5, "moments": 3.2},
}
LINES = [
    {"to": "active", "kind": "moment_answer", "shape": {"answer": [1000]}, "bytes": 1000},
    {"to": "active", "kind": "moment_share", "shape": {"share": [64, 64]}, "bytes": 40},
    {"to": "active", "kind": "answer", "shape": {"reply": [70]}, "bytes": 70},
    {"to": "active", "kind": "hello", "shape": {}, "bytes": 5},
    {"to": "active", "kind": "width", "shape": {}, "bytes": 6},
]


@pytest.fixture
def blind(tmp_path: Path) -> Path:
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "blind"))
    told(run, **TOLD)
    ledger = run / "parties" / "passive_1" / "ledger.jsonl"
    ledger.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return run


def told(run: Path, **facts: Any) -> Path:
    summary = json.loads((run / "summary.json").read_text())
    known = summary.get("blind_training", {})
    write_json(run / "summary.json", {**summary, "protocol": "blind", "blind_training": {**known, **facts}})
    return run


def test_the_first_line_says_what_crossed(blind: Path) -> None:
    said = "Sums over 24,887 rows crossed, epsilon = 4; no training row was opened; 1 number a predicted row."
    assert crossed_sentence(read_run(blind)) == said
    exact = "Sums over 24,887 rows crossed; no training row was opened; 10 numbers a predicted row."
    assert crossed_sentence(read_run(told(blind, epsilon=None, numbers=10))) == exact


def test_what_was_sent_is_told_in_words_and_adds_up(blind: Path) -> None:
    rows = sent_in_words(read_run(blind), "passive_1")
    assert [row["bytes"] for row in rows] == [1000, 70, 40, 11]
    assert rows[-1]["what"] == OTHER[0]
    assert sum(row["bytes"] for row in rows) == sum(line["bytes"] for line in LINES)


def test_a_run_without_encryption_claims_nothing(blind: Path) -> None:
    run = read_run(told(blind, encryption="none"))
    assert crossed_sentence(run).startswith("Not encrypted: features of the training rows crossed in clear")
    assert dict(opened(run)) == {"everybody": "what its partners sent, features of training rows included"}
    query = {"to": "active", "kind": "moment_query", "shape": {"rows": [9]}, "bytes": 9}
    (blind / "parties" / "passive_1" / "ledger.jsonl").write_text(json.dumps(query) + "\n")
    assert sent_in_words(read_run(blind), "passive_1")[0]["what"] == "FEATURES OF THE TRAINING ROWS, IN CLEAR"
    assert "encrypted" in sent_in_words(read_run(told(blind, encryption="bfv")), "passive_1")[0]["what"]


def test_an_attacked_run_has_what_was_read_as_its_title(blind: Path) -> None:
    section = blind_section(read_run(blind))
    assert section is not None
    assert section["title"] == ""
    summary = json.loads((blind / "summary.json").read_text())
    write_json(blind / "summary.json", {**summary, "strongest": {"attack": "score_decoder", "leakage": 0.031}})
    read = "No training row was opened; 3 % of predicted rows was read from 1 opened score a row."
    assert read in write_report(blind).read_text(encoding="utf-8")
    assert ("leakage, predicted rows", "3 %") in key_numbers(read_run(blind))
    section = blind_section(read_run(told(blind, encryption="none")))
    assert section is not None
    assert section["title"] == ""


def test_labels_are_told_as_they_left(blind: Path) -> None:
    def about_labels() -> str:
        return next(words for who, words in opened(read_run(blind)) if who != "active")

    assert about_labels().startswith("nothing")
    told(blind, labels="private", label_account={"epsilon": 2.0, "kept": 0.88})
    assert about_labels().endswith("epsilon = 2 a label, 88 % of them are told as they are")
    told(blind, labels="shared")
    assert about_labels() == "the true labels of the training rows"


def test_one_passive_party_is_opened_alone(blind: Path) -> None:
    assert any("sum of all parties" in words for _, words in opened(read_run(blind)))
    assert any("one passive party's part alone" in words for _, words in opened(read_run(told(blind, summed=False))))


def test_exact_sums_are_not_called_private(blind: Path) -> None:
    assert dict(account(read_run(blind)))["sums"].startswith("epsilon = 4, delta = 1e-05, one release")
    assert "no differential privacy" in dict(account(read_run(told(blind, epsilon=None))))["sums"]
    assert "no differential privacy" in dict(account(read_run(blind)))["scores"]


def test_the_page_has_it_and_speaks_of_no_representation(blind: Path) -> None:
    page = write_report(blind).read_text(encoding="utf-8")
    for said in ("Sums over 24,887 rows", "splines", "3 rare words merged", "31.6", "a blind head on", "0.31"):
        assert said in page
    assert "Representations and gradients are not encrypted" not in page
    assert "Nothing was encrypted" not in page
    told(blind, encryption="none")
    assert "Nothing was encrypted" in write_report(blind).read_text(encoding="utf-8")


def test_a_page_needs_nothing_of_a_run_that_broke_off(blind: Path) -> None:
    (blind / "summary.json").write_text("{}")
    text = (blind / "config.toml").read_text().replace("[training]", '[training]\nprotocol = "blind"')
    (blind / "config.toml").write_text(text)
    section = blind_section(read_run(blind))
    assert section is not None
    assert section["crossed"] == "Sums over all training rows crossed; no training row was opened."
    write_report(blind)


def test_what_a_peer_wrote_stays_text(blind: Path) -> None:
    evil = "<script>alert(1)</script>"
    told(blind, features={"passive_1": {"name": evil, "width": 3, "notes": [evil]}}, calibration={evil: 1.0})
    assert evil not in write_report(blind).read_text(encoding="utf-8")


def test_a_split_run_has_no_such_section_and_is_compared_with_a_blind_one(blind: Path, tmp_path: Path) -> None:
    split = Path(shutil.copytree(EXAMPLE, tmp_path / "split"))
    assert blind_section(read_run(split)) is None
    rows = compare([split, blind])
    assert [(row["protocol"], row["cut"] is None, row["defense"]) for row in rows][1] == ("blind", True, "")
    assert rows[0]["protocol"] == "split"
    assert rows[1]["model"] == "splines"
    page = write_comparison([split, blind], tmp_path / "both.html").read_text(encoding="utf-8")
    assert "protocol" in page
    assert "protocol" not in write_comparison(
        [split, shutil.copytree(split, tmp_path / "other")], tmp_path / "same.html"
    ).read_text(encoding="utf-8")
