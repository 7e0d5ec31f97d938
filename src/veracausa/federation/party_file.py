"""`party.toml`: what is one party's own. It is written where the party joins, and no command sends it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from veracausa.config import PartyOwn, parse_setting, section_of
from veracausa.data.files import given_path
from veracausa.data.tables import OwnTable
from veracausa.errors import InputError
from veracausa.federation.members import first_problem
from veracausa.federation.own_ids import ALIGNMENT, own_options

_ABOUT = """\
# What is {party}'s own: where its data lies, how it defends itself, what code it allows. It never leaves this folder.
"""
_EXAMPLE = """\
# [data]
# path = "/data/mine.csv"
# id = "patient"
# columns = ["age", "bmi"]
# [defense]
# name = "laplace"
# [alignment]
# max_ids = 100000
"""


def party_toml(
    party: str,
    data: str | None = None,
    id: str | None = None,
    columns: Sequence[str] = (),
    defense: str | None = None,
    settings: Sequence[str] = (),
    allow_model: str | None = None,
) -> str:
    """The file's text from a command's options; `settings` are `data.K=V`, `defense.K=V` and `alignment.K=V`.

    `allow_model` is the job's model where that is code: the party vouches for it by name.
    """
    tree: dict[str, dict[str, Any]] = {"data": {}, "defense": {}, ALIGNMENT: {}}
    if data is not None:
        # A run may start in another folder.
        tree["data"]["path"] = str(given_path(data, "--data").absolute())
    if id is not None:
        tree["data"]["id"] = id
    if columns:
        tree["data"]["columns"] = list(columns)
    if defense is not None:
        tree["defense"]["name"] = defense
    for setting in settings:
        _lay_over(tree, setting)
    own: dict[str, dict[str, Any]] = {table: values for table, values in tree.items() if values}
    try:
        PartyOwn.model_validate({table: values for table, values in own.items() if table != ALIGNMENT})
        OwnTable.model_validate(own.get("data", {}))
    except ValidationError as error:
        raise InputError(f"party.toml: {first_problem(error)}") from None
    own_options(own, Path())
    if allow_model is not None:
        own["model"] = {"allow": allow_model}
    import tomli_w

    return _ABOUT.format(party=party) + (tomli_w.dumps(own) if own else _EXAMPLE)


def _lay_over(tree: dict[str, dict[str, Any]], setting: str) -> None:
    form = "data.K=V, defense.K=V or alignment.K=V"
    (table, *path), value = parse_setting(setting, form)
    if table not in tree or not path or not all(path):
        raise InputError(f"--set {setting}: write it as {form}")
    section_of(tree[table], path[:-1], setting)[path[-1]] = value
