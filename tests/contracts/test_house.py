"""The rules of the house, held over the source text: names, import direction, size, and what the pages name."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from veracausa.registry import Registry

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "veracausa"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINES = 450

LEVELS = (
    ("",),  # the modules at the root
    ("wire", "crypto", "metrics", "data", "models"),
    ("runs", "alignment"),
    ("defenses", "attacks", "features"),
    ("training", "discovery"),
    ("audit", "experiments", "federation"),
    ("report", "testing", "cli"),
)
"""A room imports from its own level and from those above it in this list, and no two rooms import each other."""
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}

ALLOWED = {
    ("config", "data"): "a job holds the options of its data set",
    ("config", "models"): "a job holds the options of its model",
    ("config", "defenses"): "a job holds the options of its defenses",
    ("config", "features"): "a job holds the options of its feature maps",
    ("runs.folder", "training.predict"): "`Run.predict` is a method for users; it is imported when it is called",
    ("runs.folder", "report.run_page"): "`Run.report` is a method for users; it is imported when it is called",
    ("runs.folder", "report.notebook"): "what a notebook shows of a run; it is imported when it is asked for",
    ("discovery.discover", "report.notebook"): "what a notebook shows of a discovery; imported when asked for",
    ("training.predict", "report.notebook"): "what a notebook shows of predictions; imported when asked for",
    ("experiments.advice", "report.notebook"): "what a notebook shows of a frontier; imported when asked for",
    ("audit.discovery_record", "report.audit_discovery"): "an audit ends by writing its page; imported when called",
    ("discovery.discover", "report.discovery_page"): "a discovery ends by writing its page; imported when called",
    ("experiments", "report.figures"): "a table's figures are drawn as those of a run",
    ("experiments", "report.page"): "a table's page has the frame of a run's page",
}
"""Importer and what it imports, as modules or packages, with the reason. The public face imports what it exports."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    """The dotted name below `veracausa`; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in SOURCES}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ours, at the top of the file and inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "veracausa":
                    yield node.lineno, alias.name.removeprefix("veracausa").lstrip(".")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "veracausa":
            source = (node.module or "").removeprefix("veracausa").lstrip(".")
            for alias in node.names:
                below = f"{source}.{alias.name}".lstrip(".")
                yield node.lineno, below if below in MODULES else source


def room_of(module: str) -> str:
    """The folder at the top; empty for a module at the root."""
    room = module.split(".")[0]
    return room if (PACKAGE / room / "__init__.py").exists() and room else ""


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def public_classes(path: Path) -> Iterator[str]:
    for node in tree(path).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_public_class_names_are_unique() -> None:
    homes = defaultdict(list)
    for path in SOURCES:
        for name in public_classes(path):
            homes[name].append(module_of(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_every_room_has_a_level() -> None:
    rooms = {room_of(module) for module in MODULES}
    assert rooms == set(LEVEL)


def test_imports_go_one_way() -> None:
    """Up the list of levels, or within one; exceptions are named with a reason."""
    wrong, used = [], set()
    for path in SOURCES:
        module = module_of(path)
        if module in ("", "__main__"):  # the public face exports from every room, and the program starts in one
            continue
        for line, target in imported(path):
            if LEVEL[room_of(target)] <= LEVEL[room_of(module)]:
                continue
            excuse = next((pair for pair in ALLOWED if within(module, pair[0]) and within(target, pair[1])), None)
            if excuse is None:
                wrong.append(f"{module}:{line} imports {target}")
            else:
                used.add(excuse)
    assert wrong == []
    assert used == set(ALLOWED), "an exception that nobody needs"


def test_no_two_rooms_import_each_other() -> None:
    """Apart from the named exceptions."""
    found = [(module_of(path), target) for path in SOURCES for _, target in imported(path)]
    allowed = [pair for pair in found if any(within(pair[0], a) and within(pair[1], b) for a, b in ALLOWED)]
    pairs = {(room_of(module), room_of(target)) for module, target in found if (module, target) not in allowed}
    assert {(a, b) for a, b in pairs if a < b and a and (b, a) in pairs} == set()


def test_registered_names_use_underscores() -> None:
    """In every registry that some module holds; names of plug-ins are their own affair."""
    homes = [module_of(path) for path in SOURCES if re.search(r"Registry\(\s*\"", path.read_text(encoding="utf-8"))]
    modules = [importlib.import_module(f"veracausa.{home}") for home in homes]
    found = {id(thing): thing for module in modules for thing in vars(module).values() if isinstance(thing, Registry)}
    assert len(found) >= 9
    for registry in found.values():
        for name in registry.names():
            if registry.get(name).__module__.startswith("veracausa."):
                assert re.fullmatch(r"[a-z][a-z0-9_]*", name), f"{registry.kind} {name!r}"


def assigned(path: Path) -> Iterator[str]:
    """Names of aliases at the top of a module."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_shared_aliases_are_declared_once() -> None:
    shared = {name: module for module in ("arrays", "events") for name in assigned(PACKAGE / f"{module}.py")}
    assert {"Array", "Mask", "Observer"} <= set(shared)
    again = [
        f"{module_of(p)}.{name}"
        for p in SOURCES
        for name in assigned(p)
        if shared.get(name, module_of(p)) != module_of(p)
    ]
    assert again == []


def test_no_source_file_is_too_long() -> None:
    counts = {module_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: count for name, count in counts.items() if count > LINES} == {}


def test_every_package_says_what_it_is_for() -> None:
    silent = [module_of(path) for path in SOURCES if path.name == "__init__.py" and not ast.get_docstring(tree(path))]
    assert silent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_exists(page: Path) -> None:
    """Dotted names below `veracausa.`, as far as they are modules, and paths of files."""
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"\b(?:src|tests|examples|docs|benchmarks|experiments|tools)/[\w./-]*\w", text):
        assert (ROOT / path).exists(), f"no file {path}"
    for dotted in re.findall(r"\bveracausa((?:\.\w+)+)", text):
        assert _exists(dotted.lstrip(".")), f"no module or name veracausa{dotted}"


@cache
def _groups() -> set[str]:
    """The entry-point groups that registries name."""
    calls = (node for path in SOURCES for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    made = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id.endswith("Registry"))
    return {
        str(call.args[1].value).removeprefix("veracausa.") for call in made if isinstance(call.args[1], ast.Constant)
    }


def _exists(dotted: str) -> bool:
    """A module, an entry-point group, or a name that a module defines or exports."""
    if dotted in _groups():
        return True
    parts = dotted.split(".")
    for count in range(len(parts), -1, -1):
        if (module := ".".join(parts[:count])) in MODULES:
            return count == len(parts) or parts[count] in _names(module)
    return False


def _names(module: str) -> set[str]:
    path = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = set(assigned(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def test_the_glossary_has_each_term_once_in_order() -> None:
    terms = re.findall(r"^\*\*(.+?)\*\*: ", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) > 50
    assert [term.lower() for term in terms] == sorted({term.lower() for term in terms})
