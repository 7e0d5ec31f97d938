"""`veracausa audit` of a blind job and of its run: sentences, record, page, and that nothing else breaks on it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.runs.folder import Run

JOB = """
name = "toy"
[data]
name = "digits"
[features]
name = "patches"
size = 3
dictionary = 32
width = 12
patches = 2000
rounds = 2
[training]
protocol = "blind"
[blind]
encryption = "none"
"""


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("blind")
    (folder / "job.toml").write_text(JOB)
    out = folder / "run"
    quick = ("--quick", "--victims", "60", "--set", "repeated_prediction.repeats=4")
    return out, call("audit", str(folder / "job.toml"), "--out", str(out), *quick)


def test_the_first_lines_say_what_each_side_could_learn(audited: tuple[Path, Any]) -> None:
    out, printed = audited
    assert printed.exit_code == 0, printed.output
    told = Run(out).summary["blind_audit"]["sentences"]
    assert {"training rows", "predicted rows", "labels", "membership", "broken"} == set(told)
    assert told["training rows"].startswith("No training row was opened")
    assert told["training rows"] in printed.output.replace("\n", " ").replace("  ", " ")
    assert "9 numbers" in told["predicted rows"]
    assert "no label" in told["labels"]


def test_each_attack_says_how_many_there_are(audited: tuple[Path, Any]) -> None:
    _, printed = audited
    told = re.findall(r"^attack (\d+) of (\d+): ", printed.output, flags=re.MULTILINE)
    numbers, counts = list(dict.fromkeys(int(number) for number, _ in told)), {int(of) for _, of in told}
    assert numbers == list(range(1, len(numbers) + 1))
    # A class that this job cannot make is planned and passed over.
    assert len(counts) == 1
    assert counts.pop() - 2 <= len(numbers)


def test_the_record_reads_like_that_of_a_split_audit(audited: tuple[Path, Any]) -> None:
    out, _ = audited
    summary = Run(out).summary
    assert summary["strongest"]["attack"] in summary["attacks"]
    assert 0 <= summary["strongest"]["leakage"] <= 1
    decoder = summary["attacks"]["score_decoder"]
    assert set(decoder["parties"]) == {"passive_1", "passive_2"}
    assert decoder["works"] is True  # the features themselves are read
    assert decoder["undefended"]["leakage"] > decoder["leakage"]
    assert summary["label_attacks"]["label_inference"]["accuracy"] <= 1
    for words in (("report", str(out)), ("list", "runs", "--in", str(out.parent), "--json")):
        found = call(*words)
        assert found.exit_code == 0, found.output
    page = (out / "report.html").read_text()
    assert "What could be learnt" in page
    assert "No training row was opened" in (out / "audit.md").read_text()


def test_every_attack_is_tried_where_its_protection_is_off(audited: tuple[Path, Any]) -> None:
    out, _ = audited
    situations = Run(out).summary["blind_audit"]["situations"]
    off = {each["attack"]: each for each in situations if each["off"]}
    for name in ("score_decoder", "chosen_head", "two_releases", "small_class", "chosen_columns", "label_inference"):
        assert off[name]["works"], name


def test_a_finished_attack_is_not_repeated(audited: tuple[Path, Any]) -> None:
    out, _ = audited
    kept = out / "attacks" / "membership" / "metrics.json"
    before = json.loads(kept.read_text())
    found = call("audit", str(out), "--attacks", "membership", "--victims", "60", "--resume")
    assert found.exit_code == 0, found.output
    assert json.loads(kept.read_text()) == before


def test_a_comparison_shows_rows_of_one_kind(
    audited: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = audited
    monkeypatch.chdir(tmp_path)
    shutil.copytree(out, "other")
    shown = call("report", str(out), "other")
    assert shown.exit_code == 0, shown.output
    page = Path("comparison.html").read_text()
    assert Run(out).summary["strongest"]["attack"] == "score_decoder"
    strips = re.findall(r'alt="([^:"]*): \d+ predicted rows', page)
    # sum_regression reads training rows, which are others.
    assert strips == 2 * ["original", "score_decoder", "blind guess"]


def test_what_is_for_split_training_is_refused(audited: tuple[Path, Any]) -> None:
    out, _ = audited
    assert CliRunner().invoke(app, ["audit", str(out), "--until-converged"]).exit_code != 0
    assert CliRunner().invoke(app, ["audit", str(out), "--attacks", "inverse"]).exit_code != 0
