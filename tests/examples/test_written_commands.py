"""The commands of the front page and of the tutorial run as they are written."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from veracausa.cli.main import app

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:Save it as `(?P<file>[\w.]+)`[^\n]*\n\n)?```(?P<kind>sh|toml job)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = ("make", "pip", "python3", ".", "veracausa doctor")
"""What installs or runs everything; tests of packaging and `make` itself stand for it."""
EXPECTED = {
    "README.md": (
        *("runs/digits/report.html", "runs/digits/predictions.csv", "runs/digits/audit.md", "runs/split/audit.md"),
        *("comparison.html", "runs/patients/graph.graphml"),
    ),
    "docs/tutorial.md": (
        *("aligned/bank.csv", "runs/credit/report.html", "runs/credit/audit.md", "runs/credit/predictions.csv"),
        "comparison.html",
    ),
}
"""What must be there afterwards."""

pytestmark = pytest.mark.slow


def commands(page: str) -> Iterator[tuple[str, str]]:
    """A file to write with its text, or an empty name with a command."""
    for block in _BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        if block["kind"] == "toml job":
            assert block["file"], f"{page}: a job that no sentence names"
            yield block["file"], block["text"]
            continue
        for line in block["text"].splitlines():
            command = line.partition(" #")[0].strip()
            if command and not command.startswith(NOT_RUN):
                yield "", command


@pytest.mark.parametrize("page", EXPECTED)
def test_a_page_runs_as_written(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for file, text in commands(page):
        if file:
            Path(file).write_text(text, encoding="utf-8")
            continue
        program, *arguments = shlex.split(text)
        if program == "python":
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        else:
            assert program == "veracausa", text
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, f"{text}\n{done.output}\n{done.exception}"
        ran += 1
    assert ran >= 6
    assert [name for name in EXPECTED[page] if not Path(name).exists()] == []
