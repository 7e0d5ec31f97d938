"""Writes the JSON schema of jobs that comes with the package: from the models, with the words of docs/jobs.md.

`python tools/job_schema.py` writes it anew. A test compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veracausa.cli.job_schema import FILE, bare_schema, schema_text

ROOT = Path(__file__).parents[1]
_ROW = re.compile(r"^\| `([^`]+)` \| .*? \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
PAGES = ("jobs.md", "causshield.md")


def described() -> dict[str, str]:
    """Every setting that a page explains, by its whole name."""
    found: dict[str, str] = {}
    for page in PAGES:
        for name, text in _ROW.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
            words = _LINK.sub(r"\1", text.rsplit(" | ", 1)[-1]).removesuffix(" See below.")
            found.setdefault(name, words)
    return found


def told_schema() -> dict[str, Any]:
    """The schema with a description of every setting that has one."""
    schema, words = bare_schema(), described()
    definitions = schema["definitions"]
    for place, model in definitions.items():
        section = place.split("_")[0] if place.split("_")[0] in ("data", "model", "defense", "features") else ""
        prefix = (
            "party.NAME.data."
            if place == "own_table"
            else "defense.surrogate."
            if place.startswith("surrogate")
            else f"{section}."
        )
        _describe(model.get("properties", {}), prefix, words, definitions)
    _describe(schema["properties"], "", words, definitions)
    party = definitions["PartyOwn"]["properties"]
    _describe(party, "party.NAME.", words, definitions)
    return schema


def _describe(
    properties: dict[str, Any], prefix: str, words: Mapping[str, str], definitions: Mapping[str, Any]
) -> None:
    for name, value in properties.items():
        if f"{prefix}{name}" in words and "$ref" not in value:
            value["description"] = words[f"{prefix}{name}"]
        inner = definitions.get(str(value.get("$ref", "")).rsplit("/", 1)[-1], {})
        if prefix in ("", "training."):
            _describe(inner.get("properties", {}), f"{prefix}{name}.", words, definitions)


if __name__ == "__main__":
    (ROOT / "src" / "veracausa" / "cli" / FILE).write_text(schema_text(told_schema()), encoding="utf-8")
