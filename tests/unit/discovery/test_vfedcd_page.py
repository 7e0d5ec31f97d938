"""docs/discovery.md names every setting with what all profiles say, every method and every data set."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from veracausa.data.causal import causal_data
from veracausa.discovery.methods import methods
from veracausa.discovery.methods.vfedcd.settings import FOLDER, RENAMED, RENAMED_PROFILES, Settings
from veracausa.registry import profiles

PAGE = (Path(__file__).parents[3] / "docs" / "discovery.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `(\w+)` \| `([^`]*)` \| `([^`]*)` \| `([^`]*)` \| `([^`]*)` \|", re.MULTILINE)
COLUMNS = ("recommended", "general", "paper_repaired", "literal")


@pytest.mark.parametrize("profile", profiles(FOLDER))
def test_every_setting_has_all_profiles(profile: str) -> None:
    told = {name: values[COLUMNS.index(profile)] for name, *values in _ROW.findall(PAGE)}
    settings = Settings(profile=profile).model_dump(mode="json")
    searches, refits = settings.pop("searches", []), settings.pop("refits", [])
    assert told == {name: json.dumps(value) for name, value in settings.items()}
    [shown] = re.findall(r"```toml\n(searches = .*?)```", PAGE, re.DOTALL)
    assert searches == (tomllib.loads(shown)["searches"] if profile == "recommended" else [])
    [shown] = re.findall(r"```toml\n(refits = .*?)```", PAGE, re.DOTALL)
    assert refits == (tomllib.loads(shown)["refits"] if profile == "general" else [])


def test_every_name_of_earlier_versions_is_on_the_page() -> None:
    assert all(f"`{old}`" in PAGE and f"`{new}`" in PAGE for old, new in [*RENAMED.items(), *RENAMED_PROFILES.items()])


def test_every_method_and_data_set_is_named() -> None:
    own = [name for name in methods.names() if methods.get(name).__module__.startswith("veracausa.")]
    for name in [*own, *causal_data.names()]:
        assert name == "table" or f"`{name}`" in PAGE, name
