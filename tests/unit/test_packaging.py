"""What is shipped: every file that the package reads, one version everywhere, and a container file that fits."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from veracausa import __version__

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "veracausa"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_wheel_has_every_file_that_is_no_code() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["veracausa"]
    others = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert "data/bundled/clothing/train-pictures.gz" in others
    assert [name for name in others if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_the_source_archive_names_what_is_there() -> None:
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()]
    named = [name for words in lines if words[0] in ("include", "graft") for name in words[1:]]
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert {"CHANGELOG.md", "CITATION.cff", "SECURITY.md", "docs", "examples"} <= set(named)


def test_what_is_bundled_comes_with_its_licence() -> None:
    licences = [path for pattern in PROJECT["project"]["license-files"] for path in ROOT.glob(pattern)]
    for folder in (PACKAGE / "data" / "bundled").iterdir():
        assert folder / "LICENSE" in licences


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("pyproject.toml", r'^version = "(.+)"$'),
        ("CITATION.cff", r"^version: (.+)$"),
        ("CHANGELOG.md", r"^## (\d[\d.]+)$"),
        ("docs/install.md", r"veracausa-([\d.]+)-py3"),
    ],
)
def test_the_version_is_the_same_everywhere(file: str, pattern: str) -> None:
    found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found[1] == __version__


def test_the_container_takes_files_and_extras_that_are_there() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
    extras = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert extras
    assert set(extras[0].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    torch = next(need for need in PROJECT["project"]["dependencies"] if need.startswith("torch"))
    assert f"'{torch}'" in text
    assert "COPY . " not in text  # a clone may hold runs and keys
