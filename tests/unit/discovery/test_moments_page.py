"""docs/discovery.md names every setting of a discovery from sums, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from veracausa.discovery.methods import methods
from veracausa.discovery.methods.moments.settings import SumsSettings

PAGE = (Path(__file__).parents[3] / "docs" / "discovery.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## `moments`") : PAGE.index("## VFedCD")]


def rows() -> dict[str, str]:
    """Setting -> default, of the table of the section; a row may have two of each."""
    found = {}
    for names, defaults in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]*) \|", SECTION, re.MULTILINE):
        found |= dict(zip(re.findall(r"`(\w+)`", names), defaults.split(", "), strict=True))
    return found


def test_every_setting_is_told_with_its_default() -> None:
    told = rows()
    for name, field in SumsSettings.model_fields.items():
        assert name in told, name
        if field.default is not None:
            word = str(field.default).lower()
            assert told[name] == word or float(told[name]) == field.default, name


def test_nothing_is_told_that_is_no_setting() -> None:
    assert set(rows()) <= set(methods.options("moments").model_fields)
