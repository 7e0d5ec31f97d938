"""The lock files fit pyproject.toml, and an audit that could ask nobody does not pass for a clean one."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check_lock, audit_lock = tool("check_lock"), tool("audit_lock")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for file in ("pyproject.toml", "requirements.lock", "requirements-torch.lock"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_the_lock_fits() -> None:
    assert check_lock.problems(ROOT) == []


def test_what_holds_keys_and_what_carries_messages_is_locked() -> None:
    pins, _ = check_lock.read_pins((ROOT / "requirements.lock").read_text(), "requirements.lock")
    assert {"seal-python", "gmpy2", "cryptography", "nvflare", "grpcio", "safetensors", "pip-audit"} <= set(pins)


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("pyproject.toml", '"scipy>=1.11"', '"scipy>=99"', "scipy>=99: the lock has"),
        ("pyproject.toml", '"scipy>=1.11",', '"scipy>=1.11",\n  "brand-new>=1",', "brand-new>=1: no lock file has it"),
        ("requirements.lock", "scipy==", "scipy>=", "scipy is not pinned to one version"),
        ("requirements.lock", "scipy==", "scipy==0.", "the lock has 0."),
        ("requirements.lock", "# `tools", "--index-url https://example.org/simple\n# `tools", "names a place"),
    ],
)
def test_what_does_not_fit_is_named(file: str, old: str, new: str, sentence: str, clone: Path) -> None:
    change(clone / file, old, new)
    assert any(sentence in problem for problem in check_lock.problems(clone))


def test_a_pin_without_a_hash_is_named(clone: Path) -> None:
    lock = clone / "requirements.lock"
    kept = []
    inside = False
    for line in lock.read_text().splitlines():
        inside = line.startswith("seal-python==") or (inside and line.startswith(" "))
        kept.append(line.removesuffix(" \\") if line.startswith("seal-python==") else line)
        if inside and "--hash" in line:
            kept.pop()
    lock.write_text("\n".join(kept) + "\n")
    assert check_lock.problems(clone) == ["requirements.lock: seal-python has no hash"]


def test_a_missing_lock_is_named(clone: Path) -> None:
    (clone / "requirements.lock").unlink()
    assert "requirements.lock: is missing; run tools/lock" in check_lock.problems(clone)


IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL", "tomli-w": "tomli_w"}


def test_what_is_depended_on_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    statement = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    imported = {name for text in texts for name in statement.findall(text)}
    wanted = {check_lock.Requirement(text).name for text in project["dependencies"]}
    assert {name for name in wanted if IMPORTED_AS.get(name, name) not in imported} == set()


def test_torch_and_its_libraries_are_apart() -> None:
    written = "numpy==2.0 \\\n    --hash=sha256:1\ntorch==2.13.0\ntorchmetrics==1.9.0\ntriton==3.0\nnvidia-nccl-cu13==2"
    parts = check_lock.split(written)
    assert [line.split("==")[0] for line in parts["requirements-torch.lock"].splitlines() if "==" in line] == [
        "torch",
        "triton",
        "nvidia-nccl-cu13",
    ]
    assert "torchmetrics" in parts["requirements.lock"]


PACKAGE = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "Dependency not found and could not be audited"}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "X-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("packages", "state"),
    [
        ([PACKAGE], "clean"),
        ([SKIPPED], "NOT AUDITED"),
        ([], "NOT AUDITED"),
        ([PACKAGE, SKIPPED], "partly audited"),
        ([PACKAGE, SKIPPED, BAD], "vulnerable"),
    ],
)
def test_nobody_asked_is_not_clean(packages: list[dict[str, Any]], state: str) -> None:
    outcome = audit_lock.judge({"dependencies": packages})
    assert outcome.state == state
    assert outcome.failed is (state == "vulnerable")


@pytest.mark.parametrize(
    ("done", "sentence"),
    [
        (subprocess.CompletedProcess([], 1, "", "Traceback\nConnectionError: no route"), "ConnectionError: no route"),
        (subprocess.CompletedProcess([], 0, "No known vulnerabilities found", ""), "pip-audit said nothing"),
        (subprocess.TimeoutExpired([], 1), "did not answer"),
        (None, "not installed"),
    ],
)
def test_an_audit_that_fails_says_that_it_is_none(
    done: object, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object, **options: object) -> object:
        if isinstance(done, BaseException):
            raise done
        return done

    monkeypatch.setattr(audit_lock.importlib.util, "find_spec", lambda name: None if done is None else object())
    monkeypatch.setattr(audit_lock.subprocess, "run", run)
    assert audit_lock.main() == 0
    said = capsys.readouterr().out
    assert "NOT AUDITED" in said
    assert sentence in said
    assert "not a clean result" in said
    assert "clean:" not in said
