"""The JSON schema of a job, from the models that check one: editors complete settings with it and mark wrong ones.

A file of it comes with the package, with the words of docs/jobs.md as descriptions. `tools/job_schema.py` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from veracausa.registry import Registry

TITLE = "A job of veracausa"
FILE = "job.schema.json"
DIALECT = "http://json-schema.org/draft-07/schema#"
_DEFS = "#/definitions/"


def shipped_schema() -> dict[str, Any]:
    """The schema that comes with the package."""
    text = (files("veracausa.cli") / FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def job_schema() -> dict[str, Any]:
    """The schema of this installation, plug-ins and all; what the shipped one describes is described here, too."""
    schema = bare_schema()
    _describe_as(schema, shipped_schema())
    return schema


def schema_text(schema: Mapping[str, Any]) -> str:
    """A schema as a file holds it."""
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def bare_schema() -> dict[str, Any]:
    """What pydantic says of a job, with every choice of a registry written out; without descriptions."""
    from veracausa.config import Job
    from veracausa.data.sources import datasets
    from veracausa.data.tables import OwnTable
    from veracausa.defenses import defenses
    from veracausa.defenses.causshield.surrogates import surrogates
    from veracausa.features import feature_maps
    from veracausa.models import UserModel, models

    definitions: dict[str, Any] = {}
    registries: dict[str, Registry[Any]] = {"data": datasets, "defense": defenses, "features": feature_maps}
    for kind, registry in registries.items():
        definitions[kind] = {"anyOf": _choices(registry, kind, definitions)}
    auto = {"type": "object", "properties": {"name": {"const": "auto"}}, "additionalProperties": False}
    definitions["surrogate"] = {"anyOf": [*_choices(surrogates, "surrogate", definitions), auto]}
    factory = {"type": "string", "pattern": r"^[\w.]+:\w+$"}
    own_model = _model(UserModel, "model_of_your_own", definitions, factory)
    definitions["model"] = {"anyOf": [*_choices(models, "model", definitions), own_model]}
    _model(OwnTable, "own_table", definitions)
    root = _plain(Job.model_json_schema(ref_template=_DEFS + "{model}"))
    definitions |= root.pop("$defs")
    chosen = {"data": "data", "model": "model", "defense": "defense", "features": "features"}
    _point(root["properties"], chosen)
    _point(definitions["PartyOwn"]["properties"], {**chosen, "data": "own_table"})
    for place, model in definitions.items():
        if place.startswith(("defense_", "features_")):
            _point(model.get("properties", {}), {"surrogate": "surrogate", "source": "data"})
    root["required"] = ["data"]  # blind training needs no model
    return {"$schema": DIALECT, "title": TITLE, **root, "definitions": _used(root, definitions)}


def _point(properties: dict[str, Any], to: Mapping[str, str]) -> None:
    """Let these settings, where there are such, be one of the things of a registry."""
    for name, place in to.items():
        if name in properties:
            properties[name] = {"$ref": _DEFS + place}


def _used(root: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that something refers to."""
    found: dict[str, Any] = {}
    left = [json.dumps(root)]
    while left:
        for place in re.findall(f'"{_DEFS}([^"]+)"', left.pop()):
            if place not in found:
                found[place] = definitions[place]
                left.append(json.dumps(definitions[place]))
    return found


def _choices(registry: Registry[Any], kind: str, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Each thing of a registry with its own settings."""
    return [_model(registry.options(name), f"{kind}_{name}", definitions, {"const": name}) for name in registry.names()]


def _model(
    model: type[BaseModel], place: str, definitions: dict[str, Any], name: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A reference to the model, which is put among the definitions."""
    made = model.model_json_schema(ref_template=f"{_DEFS}{place}_{{model}}")
    for inner, found in made.pop("$defs", {}).items():
        definitions[f"{place}_{inner}"] = _plain(found)
    made = _plain(made)
    if name is not None:
        made["properties"]["name"] = dict(name)
        made["required"] = sorted({*made.get("required", ()), "name"})
    definitions[place] = made
    return {"$ref": _DEFS + place}


def _plain(value: Any) -> Any:
    """Without titles, docstrings of classes and defaults that are whole sections; with lists as draft 7 has them."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if key in ("properties", "$defs"):
            plain[key] = {name: _plain(own) for name, own in item.items()}
        elif key == "prefixItems":
            plain["items"] = _plain(item)
        elif key == "default":
            if item is not None and not isinstance(item, dict):  # TOML has no null: such a setting is left out
                plain[key] = item
        elif key not in ("title", "description"):
            plain[key] = _plain(item)
    if "anyOf" in plain:
        given = [item for item in plain.pop("anyOf") if item != {"type": "null"}]
        plain = {**plain, **given[0]} if len(given) == 1 else {**plain, "anyOf": given}
    return plain


def _describe_as(schema: Any, shipped: Any) -> None:
    if not (isinstance(schema, dict) and isinstance(shipped, dict)):
        return
    if isinstance(said := shipped.get("description"), str) and "description" not in schema:
        schema["description"] = said
    for key, value in schema.items():
        _describe_as(value, shipped.get(key))
