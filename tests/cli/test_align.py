"""`veracausa align`: tables in one order, and one sentence where that cannot be."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from benchmarks.align import Case, run
from veracausa.cli.main import app
from veracausa.errors import InputError

HOSPITAL = "patient,age,code\n007,30,1e3\n 8,40,0012\n12.0,50,\nAB,60,x\n"
LAB = "who,hb\nab,1.50\n12,2\n007,3\n5,4\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hospital.csv").write_text(HOSPITAL, encoding="utf-8")
    (tmp_path / "lab.csv").write_text(LAB, encoding="utf-8")
    return tmp_path


def call(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["align", *arguments])
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0
    return json.loads(result.stdout.splitlines()[-1]) if "--json" in arguments else result.output


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


BOTH = ("hospital.csv", "lab.csv", "--id", "hospital=patient", "--id", "lab=who")


def test_the_same_people_stand_in_the_same_rows_and_every_cell_is_as_it_was(here: Path) -> None:
    summary = call(*BOTH, "--json")
    first, second = rows(here / "aligned" / "hospital.csv"), rows(here / "aligned" / "lab.csv")
    assert [row["patient"].removesuffix(".0") for row in first] == [row["who"] for row in second]
    assert {row["patient"]: row["code"] for row in first} == {"007": "1e3", "12.0": ""}
    assert summary["length"] == 2
    assert summary["parties"]["lab"] | {"written": []} == {
        "file": "lab.csv", "rows": 4, "announced": 4, "held": 2, "share": 0.5, "written": []
    }  # fmt: skip
    assert json.loads((here / "aligned" / "report.json").read_text(encoding="utf-8")) == summary


def test_the_index_says_which_row_stands_where(here: Path) -> None:
    call(*BOTH, "--case-fold", "--rows-only", "--mode", "active", "--out", "found")
    assert sorted(path.name for path in (here / "found").iterdir()) == [
        "hospital.index.csv", "lab.index.csv", "report.json"
    ]  # fmt: skip
    places = {name: {r["place"]: int(r["row"]) for r in rows(here / "found" / f"{name}.index.csv")} for name in
              ("hospital", "lab")}  # fmt: skip
    assert sorted(places["hospital"].values()) == [1, 2, 3, 4]
    # Rows of the hospital's patients 007, 12 and AB, and theirs in the laboratory.
    assert {places["hospital"][place]: row for place, row in places["lab"].items()} == {1: 3, 3: 2, 4: 1}


def test_parties_have_names_and_files_may_be_parquet(here: Path) -> None:
    pl.DataFrame({"id": [3.0, 1.0, 2.0], "x": [0.5, 0.25, 1.0]}).write_parquet(here / "t.parquet")
    pl.DataFrame({"id": ["2", "3", "4"], "y": ["b", "c", "d"]}).write_csv(here / "t.csv", separator=";")
    with pytest.raises(InputError, match="two files are of the party 't'"):
        call("t.parquet", "t.csv", "--id", "id")
    summary = call("bank=t.parquet", "shop=t.csv", "--id", "id", "--separator", ";", "--out", "o", "--json")
    assert list(summary["parties"]) == ["bank", "shop"]
    aligned = pl.read_parquet(here / "o" / "bank.parquet")
    assert aligned.schema["x"] == pl.Float64
    assert [f"{key:.0f}" for key in aligned["id"]] == [row["id"] for row in csv.DictReader(
        (here / "o" / "shop.csv").read_text(encoding="utf-8").splitlines(), delimiter=";")]  # fmt: skip


def test_few_common_ids_are_warned_of(here: Path) -> None:
    assert "warning: lab: 2 of its 4 ids" in call(*BOTH, "--min-share", "0.9")


@pytest.mark.parametrize(
    ("lab", "arguments", "sentence"),
    [
        (LAB, ("hospital.csv", "--id", "patient"), "at least two parties"),
        (LAB, ("hospital.csv", "lab.csv", "--id", "patient"), r"lab\.csv: no column 'patient' for the id"),
        (LAB, ("hospital.csv", "lab.csv", "--id", "lab=who"), "party 'hospital' has none"),
        (LAB, ("hospital.csv", "no.csv", "--id", "patient"), r"no\.csv: no such file"),
        (LAB, (*BOTH, "--out", "."), "name a new folder"),
        (LAB, (*BOTH, "--max-ids", "3"), "brings 4 ids, at most 3 are taken.*raise max_ids"),
        (LAB + " 5 ,6\n", BOTH, r"lab\.csv: rows 4 and 5 have the same id"),
        (LAB + ",6\n", BOTH, r"lab\.csv: row 5: the id \('who'\) is missing"),
        (LAB + "NA,6\n", BOTH, r"lab\.csv: row 5: the id \('who'\) is missing"),
        (LAB + '" ",6\n', BOTH, r"lab\.csv: row 5: the id \('who'\) is missing"),
        ("who,hb\n99,1\n", BOTH, "have no id in common"),
    ],
)
def test_what_cannot_be_aligned_is_said_in_a_sentence_and_nothing_is_written(
    here: Path, lab: str, arguments: tuple[str, ...], sentence: str
) -> None:
    (here / "lab.csv").write_text(lab, encoding="utf-8")
    with pytest.raises(Exception, match=sentence) as error:
        call(*arguments)
    assert getattr(error.value, "exit_code", 0) in (1, 2)
    assert not (here / "aligned").exists()


def test_the_bench_counts_right_answers_only() -> None:
    rows = run([Case(40, 10), Case(40, 10, mode="active"), Case(40, 10, 3)], workers=0, others=False)
    assert [row.extra["exponentiations"] for row in rows] == [160, 160, 360]
    assert all(row.seconds > 0 and row.against_seconds > 0 for row in rows)
    # A point is 32 bytes, and a party of two sends its own set and, but for the active one, its peer's once more.
    assert rows[0].extra["mb_active"] * 1e6 > 32 * 40
    assert rows[0].extra["mb_passive"] * 1e6 > 2 * 32 * 40
