"""docs/jobs.md and docs/causshield.md name every setting with its default, and none that does not exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from veracausa.config import Job, PartyOwn, load_job
from veracausa.data.sources import datasets
from veracausa.data.tables import OwnTable
from veracausa.defenses.causshield.options import FOLDER, CausShieldOptions
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.features import feature_maps
from veracausa.models import UserModel, models
from veracausa.registry import profiles
from veracausa.report.defense_figures import DIAGNOSTICS, GATES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| .+ \|$", re.MULTILINE)
_CAUSSHIELD_ROW = re.compile(r"^\| `defense\.(\w+)` \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| .+ \|$", re.MULTILINE)
_JOB = re.compile(r"^```toml job\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _settings(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            yield from _settings(nested, f"{prefix}{name}.")
        else:
            yield (
                f"{prefix}{name}",
                "required" if field.is_required() else _written(field.get_default(call_default_factory=True)),
            )


def _written(value: Any) -> str:
    return "–" if value is None else f"`{json.dumps(value, default=str)}`"


def _expected() -> Iterator[tuple[str, str]]:
    for name, default in _settings(Job, ""):
        if name.split(".")[0] not in ("party", "data", "model", "defense", "features"):
            yield name, default
    for source in datasets.names():
        if datasets.options(source).__module__.startswith("veracausa."):
            yield from _settings(datasets.options(source), "data.")
    for options in (UserModel, *(models.options(model) for model in models.names())):
        if options.__module__.startswith("veracausa."):
            yield from _settings(options, "model.")
    yield from _settings(OwnTable, "party.NAME.data.")
    yield "defense.name", '`"none"`'
    yield "features.name", '`"auto"`'
    yield from ((name, default) for name, default in _settings(PartyOwn, "party.NAME.") if not name.endswith(".data"))


def test_every_setting_is_described_with_its_default() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    described = dict(_ROW.findall(page))
    expected = set(_expected())
    assert set(described) == {setting for setting, _ in expected}
    for setting, default in expected:
        alternatives = re.findall(r"required|–|`[^`]*`", described[setting])
        assert default in alternatives, f"{setting}: the default is {default}, the page says {described[setting]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_jobs_that_are_shown_load(page: Path) -> None:
    import tomllib

    for text in _JOB.findall(page.read_text(encoding="utf-8")):
        load_job(tomllib.loads(text))


def test_causshield_has_every_setting_with_all_profiles() -> None:
    page = (ROOT / "docs" / "causshield.md").read_text(encoding="utf-8")
    described = {
        name: dict(zip(("recommended", "paper_repaired", "literal"), values, strict=True))
        for name, *values in _CAUSSHIELD_ROW.findall(page)
    }
    for profile in profiles(FOLDER):
        settings = CausShieldOptions(profile=profile).model_dump(mode="json", exclude={"name"})
        told = {name: values[profile] for name, values in described.items()}
        assert told == {name: json.dumps(value) for name, value in settings.items()}, f"the column of {profile!r}"


def test_causshield_has_every_surrogate_and_its_settings() -> None:
    page = (ROOT / "docs" / "causshield.md").read_text(encoding="utf-8")
    kinds = [kind for kind in surrogates.names() if surrogates.options(kind).__module__.startswith("veracausa.")]
    for kind in kinds:
        assert re.search(rf"^\| `{kind}` \|", page, re.MULTILINE), f"no row for the surrogate {kind!r}"
    prefix = "defense.surrogate."
    expected = {
        found for kind in kinds for found in _settings(surrogates.options(kind), prefix) if found[1] != "required"
    }
    expected.add((f"{prefix}name", '`"auto"`'))
    described = {name: default for name, default in _ROW.findall(page) if name.startswith(prefix)}
    assert set(described) == {name for name, _ in expected}
    for name in described:
        defaults = {default for known, default in expected if known == name}
        assert set(re.findall(r"`[^`]*`", described[name])) == defaults, name


def test_every_feature_map_is_described() -> None:
    page = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    for name in feature_maps.names():
        if feature_maps.get(name).__module__.startswith("veracausa."):
            assert f"`{name}`" in page, f"docs/features.md has no {name}"


def test_every_diagnostic_and_gate_is_described() -> None:
    page = (ROOT / "docs" / "causshield.md").read_text(encoding="utf-8")
    first_cells = " ".join(re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE))
    others = (ROOT / "docs" / "defenses.md").read_text(encoding="utf-8")
    for name in (*DIAGNOSTICS, *GATES):
        assert f"`{name}`" in first_cells or f"`{name}`" in others, f"{name} is not described"
