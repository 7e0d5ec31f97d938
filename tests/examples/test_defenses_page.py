"""docs/defenses.md names every defense, and the settings of noise and masks with their defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from veracausa.defenses import defenses

PAGE = (Path(__file__).parents[2] / "docs" / "defenses.md").read_text(encoding="utf-8")
_SETTING = re.compile(r"^\| `(\w+)\.(\w+)` \| (.+?) \|", re.MULTILINE)
SETTINGS = {"laplace": "laplace", "prune": "prune", "soteria": "soteria", "invl_dnp": "invl", "invl_enp": "invl"}


def own(name: str) -> bool:
    return defenses.get(name).__module__.startswith("veracausa.")


def test_every_defense_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.split("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == [name for name in defenses.names() if own(name)]


@pytest.mark.parametrize(("name", "prefix"), SETTINGS.items())
def test_every_setting_has_its_default(name: str, prefix: str) -> None:
    described = {setting: default for owner, setting, default in _SETTING.findall(PAGE) if owner == prefix}
    made = defenses.options(name)(name=name).model_dump(mode="json", exclude={"name"})
    assert set(described) == set(made)
    for setting, value in made.items():
        assert f"`{json.dumps(value)}`" in described[setting], f"{name}.{setting} is {value}"


def test_what_is_reconstructed_is_called_so() -> None:
    for line in PAGE.split("\n## ")[0].splitlines():
        if found := re.match(r"^\| `(\w+)` \|", line):
            assert ("(reconstructed)" in line) == defenses.get(found[1]).reconstructed


def test_the_values_of_a_sweep_are_in_the_table() -> None:
    for name in SETTINGS:
        options = defenses.options(name)
        for setting in options.swept:
            row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
            weak, strong = options.sweep[setting][0], options.sweep[setting][-1]
            assert f"`{setting}`" in row
            assert f"{weak:g} … {strong:g}" in row
