"""What a page shows behind the scores: only what is whole, and with the classes' own names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from veracausa.report.evaluation_section import evaluation_section
from veracausa.report.run_page import write_report
from veracausa.runs.record import read_run

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"
TOLD = {
    "split": "test",
    "confusion": [[8, 2], [1, 9]],
    "roc": {"1": [[0.0, 0.0], [0.1, 0.9], [1.0, 1.0]]},
    "calibration": [{"said": 0.2, "right": 0.1, "rows": 10}, {"said": 0.9, "right": 0.9, "rows": 10}],
    "balance": {"train": [30, 10], "test": [10, 10]},
}


def run_with(tmp_path: Path, told: dict[str, Any], names: Any = ("no", "yes"), party: str = "active") -> Path:
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "run"))
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"event": "evaluation", "party": party, "step": 9, **told}) + "\n")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "class_names": list(names)}))
    return run


def test_classes_have_their_names_shares_and_what_was_found(tmp_path: Path) -> None:
    section = evaluation_section(read_run(run_with(tmp_path, TOLD)))
    assert section is not None
    assert section["names"] == ["no", "yes"]
    assert section["classes"][1] == {
        "name": "yes",
        "shares": ["25.0 %", "50.0 %"],
        "found": "90.0 %",
        "right": "81.8 %",
    }
    assert [[cell["count"] for cell in row] for row in section["matrix"]] == [[8, 2], [1, 9]]


@pytest.mark.draws
def test_the_page_draws_it_and_escapes_the_names(tmp_path: Path) -> None:
    text = write_report(run_with(tmp_path, TOLD, ["<script>x</script>", "yes"])).read_text(encoding="utf-8")
    assert "How good the model is" in text
    assert "said &lt;script&gt;x&lt;/script&gt;" in text
    assert "<script>x" not in text
    assert ">ROC curve<" in text
    assert ">Calibration<" in text


def test_a_few_rows_are_no_point_of_the_calibration(tmp_path: Path) -> None:
    few = [{"said": 0.5, "right": 1.0, "rows": 3}]
    drawn = evaluation_section(read_run(run_with(tmp_path / "a", {"calibration": [*TOLD["calibration"], *few]})))
    whole = evaluation_section(read_run(run_with(tmp_path / "b", {"calibration": TOLD["calibration"]})))
    assert drawn is not None
    assert whole is not None
    assert drawn["charts"] == whole["charts"] != []
    assert evaluation_section(read_run(run_with(tmp_path / "c", {"calibration": few}))) is None


@pytest.mark.parametrize(
    "torn",
    [
        {},
        {"confusion": "x", "roc": [1], "calibration": [{"said": None}], "balance": {"train": "many"}},
        {"confusion": [[1, 2], [3]], "roc": {"1": [[0, "a"], 3]}, "followed": [{"predicted": 1}]},
    ],
)
def test_what_is_torn_is_left_out(tmp_path: Path, torn: dict[str, Any]) -> None:
    run = run_with(tmp_path, torn)
    assert evaluation_section(read_run(run)) is None
    assert "How good the model is" not in write_report(run).read_text(encoding="utf-8")


def test_many_classes_have_no_matrix_and_names_that_do_not_fit_are_numbers(tmp_path: Path) -> None:
    matrix = [[int(i == j) for i in range(20)] for j in range(20)]
    section = evaluation_section(read_run(run_with(tmp_path, {"confusion": matrix})))
    assert section is not None
    assert section["matrix"] == []
    assert section["classes"][19]["name"] == "class 19"


def test_only_the_active_partys_record_counts(tmp_path: Path) -> None:
    assert evaluation_section(read_run(run_with(tmp_path, TOLD, party="passive_1"))) is None
