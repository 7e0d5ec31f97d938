"""What a run of tables says of its columns, of unbalanced classes, and of what a row sent."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import veracausa
from veracausa.cli.main import app
from veracausa.report.run_page import headline, key_numbers, sent_rows, write_report
from veracausa.runs.record import read_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    rng = random.Random(0)
    lines = ["id,visits,ward,same,spare"]
    labels = ["id,y,u"]
    for n in range(200):
        visits = "" if n % 10 == 0 else str(rng.randint(0, 9))
        name = "=1+1" if n == 7 else f"p{n}"
        lines.append(f"{name},{visits},{'abc'[n % 3]},7,x{n}")
        labels.append(f"{name},{'yes' if n % 5 == 0 else 'no'},{rng.random():.4f}")
    (folder / "clinic.csv").write_text("\n".join(lines) + "\n")
    (folder / "bank.csv").write_text("\n".join(labels) + "\n")
    job = {
        "data": {"name": "csv", "label": "y", "id": "id"},
        "model": {"name": "mlp"},
        "parties": {"active": "bank", "passive": ["clinic"]},
        "partition": {"active_has_features": True},
        "party": {
            "bank": {"data": {"path": folder / "bank.csv"}},
            "clinic": {"data": {"path": folder / "clinic.csv", "columns": ["visits", "ward", "same"]}},
        },
        "training": {"epochs": 1, "baselines": ["active_only"]},
        "runtime": {"device": "cpu", "cpu_threads": 1},
    }
    return veracausa.train(job, folder / "run")


def test_every_column_stands_with_its_type_and_what_was_done(run):
    columns = {c["name"]: c for c in run.summary["parties"]["clinic"]["columns"]}
    assert {name: c["type"] for name, c in columns.items()} == {
        "visits": "number",
        "ward": "category",
        "same": "constant",
        "id": "id",
        "spare": "left out",
    }
    assert columns["visits"]["missing"] > 0
    assert columns["visits"]["done"].startswith("standardised, a missing value counts as the mean")
    assert (columns["ward"]["distinct"], columns["ward"]["done"]) == (3, "one-hot into 3 columns")
    assert columns["same"]["done"] == "left out: it has one value"
    bank = {c["name"]: c["type"] for c in run.summary["parties"]["bank"]["columns"]}
    assert bank == {"u": "number", "id": "id", "y": "label"}


def test_the_page_has_the_table_and_the_note(run):
    page = run.report().read_text(encoding="utf-8")
    assert "one-hot into 3 columns" in page
    assert "party clinic: column &#39;same&#39; is constant in the training rows and left out" in page
    assert "2 numbers for 2 columns" in page


def test_a_column_shows_how_it_is_spread(run):
    columns = {c["name"]: c for c in run.summary["parties"]["clinic"]["columns"]}
    visits = columns["visits"]["distribution"]
    assert sum(visits["bins"]) == run.summary["parties"]["clinic"]["rows"] - columns["visits"]["missing"]
    assert (visits["low"], visits["high"]) == (0.0, 9.0)
    assert {word for word, _ in columns["ward"]["distribution"]["common"]} == {"a", "b", "c"}
    assert "distribution" not in columns["same"]
    assert "distribution" not in columns["id"], "names of people are not counted"
    page = run.report().read_text(encoding="utf-8")
    assert 'class="distribution"' in page


def test_a_party_of_a_federation_sees_its_own_columns_alone(run, tmp_path):
    site = Path(shutil.copytree(run.path, tmp_path / "site"))
    summary = json.loads((site / "summary.json").read_text())
    summary["parties"] = {"bank": summary["parties"]["bank"]}
    (site / "summary.json").write_text(json.dumps(summary))
    page = write_report(site).read_text(encoding="utf-8")
    assert "<h3>bank</h3>" in page
    assert "ward" not in page.partition("For method developers</h2>")[0]


def test_the_run_tells_what_stands_behind_its_scores(run):
    told = read_run(run.path).evaluated
    tested = sum(map(sum, told["confusion"]))
    assert told["split"] == "test"
    assert told["balance"]["test"] == [sum(row) for row in told["confusion"]]
    assert sum(entry["rows"] for entry in told["calibration"]) == tested
    right = sum(row[at] for at, row in enumerate(told["confusion"]))
    assert right / tested == pytest.approx(run.summary["accuracy"])
    page = run.report().read_text(encoding="utf-8")
    assert "Confusion matrix" in page
    assert "said yes" in page


def test_accuracy_stands_beside_the_commonest_class(run):
    record = read_run(run.path)
    assert record.unbalanced
    share = record.scores["commonest_class"]
    assert 0.7 < share < 0.95
    words = headline(record)
    assert re.search(r"test AUC 0\.\d+, balanced accuracy \d+\.\d %, accuracy \d+\.\d % \(commonest class", words)
    assert f"(commonest class {100 * share:.1f} %); the active party alone reaches AUC 0." in words
    assert [name for name, _ in key_numbers(record)[:2]] == ["test AUC", "test balanced accuracy"]
    assert ("commonest class", f"{100 * share:.1f} %") in key_numbers(record)
    assert "AUC " in run.report().read_text(encoding="utf-8")


def test_what_a_row_sent_is_said_beside_the_columns(run):
    # 5 features (one for visits, one for their gaps, three for the ward) of 2 columns that vary.
    assert run.summary["parties"]["clinic"]["shape"] == [5]
    assert sent_rows(read_run(run.path)) == ["clinic sent 2 numbers a row for its 2 columns"]


def test_the_terminal_says_it_too(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    printed = CliRunner().invoke(app, ["report", str(run.path)]).stdout
    assert "clinic sent 2 numbers a row for its 2 columns" in printed
    assert "note: party clinic: column 'same' is constant" in printed
    assert "commonest class" in printed


def test_an_id_that_is_a_formula_is_written_as_text_unless_raw(run, tmp_path):
    folder = run.path.parent
    for options, written in (([], "'=1+1,"), (["--raw"], "=1+1,")):
        out = tmp_path / f"p{len(options)}.csv"
        files = [f"bank={folder / 'bank.csv'}", f"clinic={folder / 'clinic.csv'}"]
        assert CliRunner().invoke(app, ["predict", str(run.path), *files, "--out", str(out), *options]).exit_code == 0
        assert any(line.startswith(written) for line in out.read_text().splitlines())
