"""The JSON schema of jobs: the shipped one is fresh, takes every job that loads, and marks what a job refuses."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from veracausa.cli import demo
from veracausa.cli.init import job_text
from veracausa.cli.job_schema import FILE, job_schema, schema_text, shipped_schema
from veracausa.cli.main import app
from veracausa.config import load_job
from veracausa.data.sources import datasets
from veracausa.defenses import defenses
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.models import models

ROOT = Path(__file__).parents[2]
SCHEMA = shipped_schema()
KNOWN = {"$schema", "title", "description", "default", "definitions", "type", "properties", "required", "pattern"}
KNOWN |= {"$ref", "const", "enum", "anyOf", "items", "minItems", "maxItems", "minLength", "maxLength", "multipleOf"}
KNOWN |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "additionalProperties"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def faults(value: Any, schema: dict[str, Any], place: str = "job") -> Iterator[str]:
    """What a reader of JSON schema says of the value; of the keywords that the schema uses, and no others."""
    assert set(schema) <= KNOWN, f"{place}: this check does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        yield from faults(value, SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[-1]], place)
    if "anyOf" in schema and all(list(faults(value, one, place)) for one in schema["anyOf"]):
        yield f"{place}: fits none"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: is not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: is none of {schema['enum']}"
    if "type" in schema and (
        not isinstance(value, TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean")
    ):
        yield f"{place}: is no {schema['type']}"
        return
    if isinstance(value, dict):
        yield from (f"{place}: lacks {name}" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            own = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            if own is False:
                yield f"{place}: {name} is no setting"
            elif isinstance(own, dict):
                yield from faults(item, own, f"{place}.{name}")
    if isinstance(value, list):
        kinds = schema.get("items", {})
        for at, item in enumerate(value):
            own = kinds[at] if isinstance(kinds, list) and at < len(kinds) else kinds if isinstance(kinds, dict) else {}
            yield from faults(item, own, f"{place}.{at}")
    sizes = {"Length": value, "Items": value}
    for end, sized in sizes.items():
        if isinstance(sized, str | list) and not (
            schema.get(f"min{end}", 0) <= len(sized) <= schema.get(f"max{end}", 1 << 60)
        ):
            yield f"{place}: has the wrong size"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{place}: is not {schema['pattern']}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", -1e99), schema.get("maximum", 1e99)
        above, below = schema.get("exclusiveMinimum", -1e99), schema.get("exclusiveMaximum", 1e99)
        if not (low <= value <= high and above < value < below):
            yield f"{place}: is out of its limits"


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every job that comes with the repository."""
    for name in datasets.names():
        for protocol in ("split", "blind"):
            yield f"init {name} {protocol}", tomllib.loads(job_text(name, protocol=protocol))
    yield from (("demo split", demo.SPLIT), ("demo blind", demo.BLIND))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for at, text in enumerate(re.findall(r"^```toml job\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)):
            yield f"{page.name} {at}", tomllib.loads(text)
    for path in sorted((ROOT / "examples").rglob("*.toml")):
        if "data" in (tree := tomllib.loads(path.read_text())) and tree.get("kind") != "discovery":
            yield path.name, tree
    for path in sorted(ROOT.glob("results/**/config.toml")):
        tree = tomllib.loads(path.read_text())
        if tree.get("kind") != "discovery":
            yield str(path.relative_to(ROOT)), tree


def test_the_shipped_schema_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (datasets, defenses, feature_maps, models, surrogates):
        registry.names()
        # Other tests may have registered toys in this process, which the package does not ship.
        ours = {
            name: entry for name, entry in registry._entries.items() if entry[0].__module__.startswith("veracausa.")
        }
        monkeypatch.setattr(registry, "_entries", ours)
    made = runpy.run_path(str(ROOT / "tools" / "job_schema.py"))["told_schema"]()
    shipped = (ROOT / "src" / "veracausa" / "cli" / FILE).read_text(encoding="utf-8")
    assert shipped == schema_text(made), "run `python tools/job_schema.py`"


def test_every_job_of_the_repository_fits() -> None:
    found = dict(jobs())
    assert len(found) > 20
    for name, tree in found.items():
        assert list(faults(tree, SCHEMA)) == [], name


def test_a_whole_job_fits_too() -> None:
    for text in (job_text("csv", protocol="split"), job_text("images", protocol="blind")):
        job = load_job(tomllib.loads(text), ["party.active.book=here"])
        assert list(faults(tomllib.loads(job.to_toml()), SCHEMA)) == []


@pytest.mark.parametrize(
    "setting",
    [
        {"trainning": {}},
        {"training": {"epoch": 3}},
        {"training": {"epochs": 0}},
        {"training": {"epochs": "many"}},
        {"defense": {"name": "causheild"}},
        {"defense": {"name": "causshield", "surrogate": {"name": "lba"}}},
        {"data": {"name": "csv"}},
        {"data": {"name": "digits", "path": "a.csv"}},
        {"model": {"name": "mlp", "widths": [3]}},
        {"party": {"active": {"data": {"seperator": ";"}}}},
        {"runtime": {"device": "gpu"}},
        {"parties": {"passive": []}},
    ],
)
def test_what_a_job_refuses_is_marked(setting: dict[str, Any]) -> None:
    tree = {"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}, **setting}
    assert list(faults(tree, SCHEMA)) != []


def test_settings_are_described() -> None:
    assert "epochs" in SCHEMA["definitions"]["Training"]["properties"]
    told = SCHEMA["definitions"]["Training"]["properties"]["epochs"]["description"]
    assert told in (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")


def test_the_command_prints_and_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(app, ["schema"]).stdout
    assert json.loads(printed) == job_schema()
    CliRunner().invoke(app, ["schema", "--out", "a/b.json"], catch_exceptions=False)
    assert Path("a/b.json").read_text(encoding="utf-8") == printed
    Path("mine.json").write_text("{}")
    assert isinstance(CliRunner().invoke(app, ["schema", "--out", "mine.json"]).exception, InputError)
    assert Path("mine.json").read_text() == "{}"


def test_init_names_the_schema_that_it_writes_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, ["init", "jobs/job.toml", "--schema"], catch_exceptions=False)
    first, *_ = Path("jobs/job.toml").read_text(encoding="utf-8").splitlines()
    assert first == f"#:schema ./{FILE}"
    assert (tmp_path / "jobs" / FILE).is_file()
    load_job("jobs/job.toml")
