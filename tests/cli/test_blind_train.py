"""Blind training by the commands: train, what it prints, predict, report and a comparison with split training."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

pytest.importorskip("seal")

from veracausa.cli.main import app
from veracausa.errors import InputError

ROWS = 1500
FILES = {"bank": "income,good", "clinic": "age", "shop": "spent"}


def tables(folder: Path, rows: int, start: int = 0, labelled: bool = True) -> None:
    draw = random.Random(start)
    lines = {
        party: [f"id,{columns if labelled else columns.removesuffix(',good')}"] for party, columns in FILES.items()
    }
    for i in range(start, start + rows):
        income, age, spent = (draw.randint(0, 99) for _ in FILES)
        label = f",{'yes' if income + age - spent > 50 else 'no'}" if labelled else ""
        for party, value in zip(FILES, (f"{income}{label}", age, spent), strict=True):
            lines[party].append(f"p{i},{value}")
    for party, found in lines.items():
        (folder / f"{'' if labelled else 'new-'}{party}.csv").write_text("\n".join(found))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a blind run in it, and what the command printed."""
    folder = tmp_path_factory.mktemp("blind")
    tables(folder, ROWS)
    job = {
        "name": "loans",
        "data": {"name": "csv", "label": "good", "id": "id"},
        "parties": {"active": "bank", "passive": ["clinic", "shop"]},
        "party": {party: {"data": {"path": str(folder / f"{party}.csv")}} for party in FILES},
        "partition": {"active_has_features": True},
        "training": {"protocol": "blind"},
        "blind": {"label_epsilon": 1.0},
        "runtime": {"device": "cpu"},
    }
    (folder / "job.toml").write_text(tomli_w.dumps(job))
    return folder, call("train", str(folder / "job.toml"), "--out", str(folder / "run"))


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_train_says_what_crossed_and_what_has_no_effect(trained: tuple[Path, str]) -> None:
    folder, printed = trained
    lines = printed.splitlines()
    phases = ["features, at home", "sums over rows", "the head, from sums", "scores of rows to predict"]
    assert [line for line in lines if line in phases] == phases
    assert "Sums over 1,200 rows crossed; no training row was opened; 1 number a predicted row." in lines
    assert "blind.label_epsilon has no effect" in printed
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "What crossed, and what was opened" in page
    assert "Representations and gradients" not in page


def test_the_ledger_has_no_kind_that_carries_a_training_rows_features(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    kinds = set()
    for ledger in folder.glob("run/parties/*/ledger.jsonl"):
        kinds |= {json.loads(line)["kind"] for line in ledger.read_text().splitlines()}
    assert {"moment_query", "moment_answer", "moment_share", "head", "answer"} <= kinds
    assert not kinds & {"representation", "gradient", "labels", "request"}


def test_labels_that_no_map_uses_are_noted_and_a_frontier_is_refused(
    trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = trained
    monkeypatch.chdir(tmp_path)
    settings = ("blind.encryption=none", "blind.labels=shared", "features.name=splines")
    quick = [*(word for setting in settings for word in ("--set", setting)), "--out", "told"]
    printed = call("train", str(folder / "job.toml"), *quick)
    assert "party clinic: was told labels for nothing: 'splines' learns without them" in printed
    assert "party bank: was told" not in printed
    assert "Not encrypted: features of the training rows crossed in clear" in printed
    with pytest.raises(InputError, match="no payload to defend"):
        call("frontier", str(folder / "job.toml"), "--defenses", "prune")
    assert not (tmp_path / "frontiers").exists()


def test_predict_and_compare(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = trained
    monkeypatch.chdir(folder)
    tables(folder, 20, start=10_000, labelled=False)
    call("predict", "run", *(f"{party}=new-{party}.csv" for party in FILES), "--out", "first.csv")
    call("predict", "run", *(f"{party}=new-{party}.csv" for party in FILES), "--out", "again.csv")
    first = (folder / "first.csv").read_text()
    assert first == (folder / "again.csv").read_text(), "an answer repeats bit for bit"
    assert len(list(csv.reader(first.splitlines()))) == 21
    split = ["training.protocol=split", "model.name=mlp", "training.epochs=1", "blind.label_epsilon=4.0"]
    call("train", "job.toml", "--out", "split", *(word for setting in split for word in ("--set", setting)))
    printed = call("report", "run", "split")
    assert "protocol" in printed
    assert "blind" in (folder / "comparison.html").read_text(encoding="utf-8")
