"""The examples run as they are, and the pages show their very text."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forking import Forks

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "blind_product.py": r"blind: test AUC 0\.[45]\d\nsplit: test AUC (0\.9\d|1\.00)",
    "blind_tables.py": r"sums over 1200 rows crossed, 1 number a predicted row\nAUC 0\.9\d+.*\nq1: yes, q2: no",
    "causshield_own_loop.py": r"M = 0: accuracy 0\.\d{3}, drift 0\.000\nM = 10: accuracy 0\.\d{3}, drift 0\.\d{3}",
    "discover.py": r"7 edges, \d of them without a direction\n(\w+ [→—] \w+: rises, \+0\.\d+ deviations\n){7}page",
    "federation_tables.py": r"clinic\.csv: 520 patients, lab\.csv: 550 patients",
    "graph_dowhy.py": r"adjusted for: \w+.*\none point of hba1c moves ldl by (1\d|2\d|3\d) mg/dl",
    "graph_networkx.py": r"(\w+ [→—] \w+: \w+, [+-]\d\.\d\d deviations\n){5,}what reaches ldl: .*hba1c",
    "graph_pgmpy.py": r"\d directed and \d undirected edges\nfitted: age, bmi, crp, dose, hba1c, ldl",
    "moments.py": r"the bank opened: None\nlargest error of a sum: 0\.0\d",
    "train_frames.py": r"AUC 0\.9\d+, bank alone 0\.8\d+\nkept: bank, shop\nq1: yes, q2: no",
    "train_digits.py": r"test accuracy: 0\.\d{3}",
    "own_model.py": r"test accuracy: 0\.\d{3}",
    "tutorial_tables.py": r"bank/people\.csv: 2080 people, bank/new\.csv: 20\nshop/people\.csv: 2080 people",
    "own_tables.py": r"q1: (yes|no)\nq2: (yes|no)",
    "own_defense.py": r"plain: test accuracy 0\.\d{3}\ncoarse: test accuracy 0\.\d{3}",
    "label_inference.py": r"gradient_direction: \d+% of the labels",
    "own_transcript.py": r"30 exchanges; 300 payloads of 100 people",
    "compare_defenses.py": r"epsilon = 1\nepsilon = 2\nlaplace: leakage 43\.9 %\nprune: leakage ≤ 60\.0 %",
    "read_ledger.py": r"representation to active: \d+ messages, [\d,]+ bytes",
}
NEEDS = {"graph_dowhy.py": "dowhy", "graph_pgmpy.py": "pgmpy"}
"""Packages that are no dependency: their examples run where they are installed."""
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
EXTEND = sorted((ROOT / "docs" / "extend").glob("*.md"))
WITH_CODE = [page for page in EXTEND if "```python" in page.read_text(encoding="utf-8")]
_BLOCK = re.compile(r"^```python (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`(\w+\.py)`|^# (\w+\.py)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


ALONE = ["causshield_own_loop.py", "label_inference.py", "own_defense.py", "own_model.py"]
HERE = [name for name in EXAMPLES if name not in ALONE]


@pytest.mark.parametrize("name", HERE)
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"needs {NEEDS[name]} (pip install {NEEDS[name]})")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(EXAMPLES[name], said), said


@pytest.mark.parametrize("name", [HERE[1], *(pytest.param(name, marks=pytest.mark.slow) for name in ALONE)])
def test_example_in_an_interpreter_of_its_own(name: str, tmp_path: Path) -> None:
    done = _run([str(ROOT / "examples" / name)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(EXAMPLES[name], done.stdout), done.stdout


def _run(arguments: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=where,
        env={**os.environ, "PYTHONPATH": path, "VERACAUSA_CACHE": str(where / "cache")},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_examples_are_short() -> None:
    for name in EXAMPLES:
        assert len((ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()) < 40, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_code_is_an_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = _BLOCK.findall(text)
    assert len(shown) == text.count("```python"), f"{page.name}: every block of Python names its file"
    for name, code in shown:
        assert code == (ROOT / name).read_text(encoding="utf-8"), f"{page.name} shows another {name}"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["torch", "pydantic", "sklearn.metrics"]) as made:
        yield made


@pytest.mark.xdist_group("pages")  # what they share is made once, not once a worker
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_what_the_pages_add_can_be_added(page: Path, tmp_path: Path, forks: Forks) -> None:
    """The first file of a page, under the name that the page gives it, as a module."""
    code, said = forks.run(
        f"import runpy; runpy.run_path({str(_first_file(page, tmp_path))!r}, run_name='page')", tmp_path
    )
    assert code == 0, said


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_what_the_pages_add_runs_as_a_program(page: Path, tmp_path: Path) -> None:
    done = _run([str(_first_file(page, tmp_path))], tmp_path)
    assert done.returncode == 0, done.stderr


def _first_file(page: Path, where: Path) -> Path:
    before, code, *_ = re.split(r"^```(?:python)?\n", page.read_text(encoding="utf-8"), maxsplit=2, flags=re.MULTILINE)
    named = _FILE.search(before) or _FILE.search(code)
    file = where / (next(filter(None, named.groups())) if named else "added.py")
    file.write_text(code, encoding="utf-8")
    return file


@pytest.mark.parametrize("page", [*PAGES, *EXTEND], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
