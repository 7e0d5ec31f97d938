"""The notebooks run as Jupyter runs them, show what they are kept with, and say nothing of a machine."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"
LARGEST = 60_000
"""Bytes of a notebook with its outputs: words and drawings, no pictures."""
SLOW = {"audit.ipynb": "it trains attackers", "blind.ipynb": "its sums are over 2,400 encrypted rows"}
sys.path.insert(0, str(ROOT / "tools"))
try:
    notebooks = import_module("notebooks")
finally:
    sys.path.pop(0)
NAMES = sorted(path.name for path in NOTEBOOKS.iterdir())


def test_there_are_three_and_nothing_else() -> None:
    assert NAMES == ["audit.ipynb", "blind.ipynb", "discovery.ipynb"]
    readers = [(ROOT / "docs" / "python.md").read_text(encoding="utf-8")]
    assert [name for name in NAMES if not all(f"examples/notebooks/{name}" in page for page in readers)] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_small_whole_and_of_no_machine(name: str) -> None:
    text = (NOTEBOOKS / name).read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    assert not re.search(r"/(home|root|tmp|work|Users)/|image/|application/|stderr|\\u001b", text)
    made = json.loads(text)
    assert set(made["metadata"]) <= {"kernelspec", "language_info"}
    cells = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run from top to bottom"
    assert made["cells"][0]["source"][0].startswith("# ")
    shown = [text for cell in cells for output in cell["outputs"] for text in notebooks.texts(output)]
    assert any('class="veracausa"' in text for text in shown), "a run shows itself"
    assert not any("<script" in text for text in shown)


@pytest.mark.skipif(
    importlib.util.find_spec("nbclient") is None or importlib.util.find_spec("ipykernel") is None,
    reason="needs nbclient and ipykernel",
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]
)
def test_it_runs_and_shows_what_it_is_kept_with(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for variable in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    made = notebooks.run_notebook(NOTEBOOKS / name, tmp_path)
    kept = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))
    assert notebooks.outputs(made) == notebooks.outputs(kept), "`make notebooks` writes what they show anew"


def test_words_count_and_numbers_do_not() -> None:
    def of(text: str) -> list[list[str]]:
        return notebooks.outputs({"cells": [{"cell_type": "code", "outputs": [{"text": [text]}]}]})  # type: ignore[no-any-return]

    assert of("AUC 0.93, <b>1,200 rows</b> in 3.4 s") == of("AUC 0.9312, <i>1,201  rows</i> in 1 min")
    assert of("rises, +0.3") != of("falls, +0.3")
