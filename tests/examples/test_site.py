"""The documentation site: every page has a place, no link is dead, the reference lacks nothing, nothing is fetched."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import veracausa
from veracausa.config import Job

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
try:
    site_pages, site_reference = import_module("site_pages"), import_module("site_reference")
finally:
    sys.path.pop(0)
PROJECT = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site") / "pages"
    site_pages.write_pages(folder)
    return folder


def named(entries: Any) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict):
            yield from (page for value in entry.values() for page in named(value))
        else:
            yield entry


def test_every_page_has_one_place(written: Path) -> None:
    pages = sorted(path.relative_to(written).as_posix() for path in written.rglob("*.md"))
    assert sorted(named(PROJECT["nav"])) == pages


def test_no_link_of_a_page_is_dead(written: Path) -> None:
    dead = []
    for page in written.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, part = target.partition("#")
            if path.startswith(site_pages.REPOSITORY):
                if not (ROOT / path.removeprefix(site_pages.REPOSITORY)).exists():
                    dead.append(f"{page.name}: {target}")
            elif "://" not in path and not path.startswith("mailto:"):
                file = (page.parent / path).resolve() if path else page
                text = file.read_text(encoding="utf-8") if file.suffix == ".md" and file.exists() else ""
                if not file.exists() or (part and f"{{: #{part} }}" not in text):
                    dead.append(f"{page.name}: {target}")
    assert dead == []


def test_links_and_anchors_become_those_of_the_site() -> None:
    text = "# A `b` [c](x.md)\n\n[d\ne](../../results/a.md#f), [g](../../README.md#h)\n\n"
    text += "```python examples/a.py\n# i\n```\n"
    made = site_pages.for_the_site(text, "docs/extend/page.md")
    assert made.splitlines()[0] == "# A `b` [c](../extend/x.md) {: #a-b-c }"
    assert f"e]({site_pages.REPOSITORY}results/a.md#f), [g](../index.md#h)" in made
    assert '```python title="examples/a.py"\n# i\n```' in made


def test_the_reference_has_every_command_and_option() -> None:
    page = site_reference.commands_page()
    found = dict(site_reference.commands())
    assert {"veracausa train", "veracausa audit", "veracausa federation run"} <= set(found)
    sections = dict(re.findall(r"^## (veracausa [\w ]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(found)
    for name, command in found.items():
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert f"`{option}" in sections[name], f"{name} {option}"


def test_the_reference_has_every_setting_and_choice() -> None:
    page = site_reference.settings_page()
    for setting, _, _ in site_reference.model_settings(Job):
        if setting.split(".")[0] not in ("data", "model", "defense", "features", "party"):
            assert f"| `{setting}` |" in page, setting
    for module, attribute, section in site_reference.KINDS.values():
        registry = getattr(import_module(module), attribute)
        for name in registry.names():
            if registry.get(name).__module__.startswith("veracausa."):
                own = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
                assert own, name
                for setting in set(registry.options(name).model_fields) - {"name"}:
                    assert f"`{section}{'.' * bool(section)}{setting}" in page, f"{name}.{setting}"


def test_the_reference_has_every_public_name_with_its_words() -> None:
    page = site_reference.python_page()
    for name in set(veracausa.__all__) - {"__version__"}:
        thing = getattr(veracausa, name)
        assert f"## veracausa.{name}\n" in page
        assert (inspect.getdoc(thing) or "?").splitlines()[0] in page
    assert "### Run.report\n" in page
    assert "\n----" not in page  # sections of docstrings are no headings
    assert " at 0x" not in page


class Addresses(HTMLParser):
    """What a page loads, where it leads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found["id"]} if "id" in found else set()
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(found.get("href", ""))
        elif tag in ("script", "img", "iframe", "source"):
            self.loads.append(found.get("src", ""))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the extra docs")
def test_the_site_builds_and_fetches_nothing(written: Path, tmp_path: Path) -> None:
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    config = tmp_path / "zensical.toml"
    config.write_text(text.replace("build/site-pages", "pages").replace("build/site", "site"), encoding="utf-8")
    shutil.copytree(written, tmp_path / "pages")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "-f", str(config)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[Path, Addresses] = {}
    for page in sorted((tmp_path / "site").rglob("*.html")):
        seen[page.resolve()] = Addresses()
        seen[page.resolve()].feed(page.read_text(encoding="utf-8"))
    assert len(seen) > 40
    for page, found in seen.items():
        assert [load for load in found.loads if load.startswith(("http:", "https:", "//"))] == [], page.name
        if page.name == "404.html":
            continue  # it is shown anywhere, so its links are absolute
        for target in [*found.links, *found.loads]:
            path, _, part = target.partition("#")
            if not target or ":" in path.split("/")[0]:
                continue
            file = (page.parent / unquote(path)).resolve() if path else page
            assert file.exists(), f"{page.name}: {target}"
            if part and file in seen:
                assert unquote(part) in seen[file].anchors, f"{page.name}: {target}"


def test_pages_are_named_by_their_titles_and_options_stay_whole() -> None:
    text = "See [docs/install.md](docs/install.md#extras), [this](docs/audit.md) and `--set a.b=c`, not `a`.\n"
    made = site_pages.for_the_site(text, "README.md")
    assert "[Install](install.md#extras), [this](audit.md)" in made
    assert "`--set a.b=c`{: .whole }, not `a`." in made
    assert "{: .whole }" not in site_pages.for_the_site("```sh\ntrain `--set`\n```\n", "README.md")
