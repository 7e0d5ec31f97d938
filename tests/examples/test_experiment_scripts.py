"""The measuring scripts beside the experiments import names that exist."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "experiments").rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(ROOT)))
def test_what_a_script_imports_is_there(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("veracausa"):
            for name in node.names:
                found = getattr(import_module(str(node.module)), name.name, None)
                assert found is not None or import_module(f"{node.module}.{name.name}")
