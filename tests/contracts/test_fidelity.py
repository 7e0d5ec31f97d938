"""docs/fidelity.md is what its declarations say, and what they name is there and has the values that they state."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fidelity", ROOT / "tools" / "fidelity.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


TOOL = _tool()
PAPERS = list(TOOL.declared())
ELEMENTS = [
    pytest.param(paper, element, id=f"{paper['title']}: {element['paper'][:40]} {at}")
    for paper in PAPERS
    for section in paper["sections"]
    for at, element in enumerate(section["elements"])
]


def found(name: str) -> Any:
    """What a name of the form `module:attribute.attribute` means."""
    module, _, path = name.partition(":")
    thing: Any = import_module(module)
    for part in filter(None, path.split(".")):
        fields = getattr(thing, "__dataclass_fields__", {})
        thing = fields[part] if part in fields else getattr(thing, part)
    return thing


def test_the_page_is_what_the_declarations_say():
    page = ROOT / "docs" / "fidelity.md"
    assert page.read_text(encoding="utf-8") == TOOL.page(), "stale; run python tools/fidelity.py"


@pytest.mark.parametrize(("paper", "element"), ELEMENTS)
def test_what_is_named_exists(paper: dict[str, Any], element: dict[str, Any]):
    assert set(element) <= {"paper", "verdict", "profiles", "protocol", "settings", "where", "says"}
    assert element["verdict"] in TOOL.VERDICTS
    for name in element["where"]:
        assert (ROOT / name).exists() if "/" in name else found(name) is not None, name


@pytest.mark.parametrize(("paper", "element"), ELEMENTS)
def test_values_are_those_of_the_profiles(paper: dict[str, Any], element: dict[str, Any]):
    options = found(paper["settings"])
    known = [
        file.stem for file in (Path(import_module(options.__module__).__file__ or "").parent / "profiles").iterdir()
    ]
    assert set(element.get("profiles", ())) <= set(known)
    for profile, values in element.get("settings", {}).items():
        assert profile in known
        assert not element.get("profiles") or profile in element["profiles"]
        told = options(profile=profile)
        for name, value in values.items():
            assert name in options.model_fields, name
            assert getattr(told, name) == value, f"{profile}: {name}"


@pytest.mark.parametrize(("paper", "element"), ELEMENTS)
def test_a_deviation_is_documented_and_what_is_missing_has_a_reason(paper: dict[str, Any], element: dict[str, Any]):
    if element["verdict"] == "faithful":
        return
    assert element.get("says"), "say what is done instead, or why nothing is"
    pages = [name for name in element["where"] if name.endswith(".md")]
    assert pages, "name the page that tells readers"


def test_a_profile_and_a_protocol_that_is_not_faithful_has_its_own_line():
    """An element that one profile lacks is not passed over in silence."""
    for paper in PAPERS:
        for section in paper["sections"]:
            for element, following in zip(section["elements"], [*section["elements"][1:], None], strict=True):
                if element["paper"].startswith("The same"):
                    continue
                if element.get("protocol") == "literal" and element["verdict"] == "faithful":
                    said = element.get("says", "")
                    assert "shares" in said or (following or {}).get("protocol") == "shares", element["paper"]


def test_a_name_that_is_not_there_would_be_found():
    with pytest.raises(AttributeError):
        found("veracausa.discovery.acyclicity:Spectral.nothing")
    with pytest.raises(ModuleNotFoundError):
        found("veracausa.discovery.nothing")
