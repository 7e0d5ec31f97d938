"""The public face: every name is there and documented, and functions stay functions whatever is imported."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest
from forking import Forks

import veracausa

FUNCTIONS = (
    "align",
    "audit",
    "audit_job",
    "discover",
    "frontier",
    "load_job",
    "predict",
    "report",
    "track",
    "train",
)


def test_dir_and_help_name_what_is_public() -> None:
    assert dir(veracausa) == sorted(veracausa.__all__)
    text = pydoc.plain(pydoc.render_doc(veracausa))
    assert [name for name in veracausa.__all__ if name not in text] == ["__version__"]  # there as VERSION
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        veracausa.trian  # noqa: B018


@pytest.mark.parametrize("name", sorted(set(veracausa.__all__) - {"__version__"}))
def test_every_public_name_is_documented(name: str) -> None:
    thing = getattr(veracausa, name)
    assert inspect.getdoc(thing)
    if name in FUNCTIONS:
        assert inspect.isfunction(thing)
        assert ">>>" in inspect.getdoc(thing)


def test_heavy_libraries_wait_until_they_are_needed() -> None:
    rooms = "veracausa.config, veracausa.events, veracausa.cli.main, veracausa.cli.progress, veracausa.report.run_page"
    code = f"import sys, {rooms}, veracausa; dir(veracausa); veracausa.InputError; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


IMPORTS = (
    "import veracausa.audit.job",
    "import veracausa.audit",
    "import veracausa.report.page as page; page.render",
    "import veracausa.report",
    "from veracausa.audit import job",
    "import veracausa.audit.job as job",
    "veracausa.audit; import veracausa.audit.settings",
    "import importlib; importlib.import_module('veracausa.audit.settings')",
)


def test_audit_is_a_function_whatever_was_imported(tmp_path: Path) -> None:
    with Forks(["torch", "pydantic"]) as forks:
        for imports in IMPORTS:
            code = f"""
import inspect, sys, types
assert not [name for name in sys.modules if name.startswith("veracausa")]
import veracausa
{imports}
for package in ("audit", "report"):
    assert inspect.isfunction(getattr(veracausa, package)), package
    assert isinstance(sys.modules["veracausa." + package], types.ModuleType)
assert veracausa.audit is veracausa.audit_job
from veracausa.audit.job import audit_job
assert audit_job is veracausa.audit
assert veracausa.report.report is not None
assert veracausa.report.page is sys.modules["veracausa.report.page"]
assert veracausa.audit.job is sys.modules["veracausa.audit.job"]
"""
            assert forks.run(code, tmp_path) == (0, ""), imports


def test_modules_of_the_package_can_still_be_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veracausa.audit.job.default_attacks", None)
    from veracausa.audit import job

    assert job.default_attacks is None
