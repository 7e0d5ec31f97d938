"""`party.toml`: one party's own settings. `join` writes it and checks the data that it names. No command sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from veracausa.alignment.settings import OwnOptions
from veracausa.config import PartyOwn, load_job
from veracausa.data.files import given_path
from veracausa.data.tables import OwnTable, TableFileOptions
from veracausa.errors import InputError
from veracausa.federation.members import first_problem, read_toml
from veracausa.written_settings import parse_setting, section_of

ALIGNMENT = "alignment"
"""The table about matching rows. It is no part of a job: rows are matched before a job sees them."""
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


def own_options(tree: Mapping[str, Any], folder: Path) -> OwnOptions:
    """What `[alignment]` of a party.toml says."""
    try:
        return OwnOptions.model_validate(tree.get(ALIGNMENT, {}))
    except ValidationError as error:
        raise InputError(f"{folder / 'party.toml'}: {ALIGNMENT}.{first_problem(error)}") from None


def party_tree(folder: Path) -> dict[str, Any]:
    """What `party.toml` says of data and defense; nothing where there is none.

    `[model]` is left out: it never becomes part of a job or of a run folder, where it would vouch for itself.
    """
    return {name: value for name, value in _whole_tree(folder).items() if name != "model"}


def allowed_model(folder: Path) -> str | None:
    """The `package.module:factory` that this party's own `party.toml` allows as the job's model, if any."""
    model = _whole_tree(folder).get("model", {})
    allowed = model.get("allow") if isinstance(model, dict) else None
    if not isinstance(model, dict) or set(model) - {"allow"} or not isinstance(allowed, str | None):
        raise InputError(f'{folder / "party.toml"}: model: holds one setting, allow = "package.module:factory"')
    return allowed


def _whole_tree(folder: Path) -> dict[str, Any]:
    path = folder / "party.toml"
    return read_toml(path) if path.is_file() else {}


def read_file(path: Path) -> bytes:
    """The content of a file that `join` has put into the party's folder."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; `veracausa federation join` makes it") from None


def own_settings(folder: Path) -> bytes:
    """All of `party.toml` that a run's results depend on: a party may change its limits, and remain who it was."""
    tree = party_tree(folder)
    kept = {name: tree[name] for name in tree if name not in (ALIGNMENT, "second_head")}
    return json.dumps(kept, sort_keys=True, default=str).encode()


def check_own_data(folder: Path, me: str) -> None:
    """Refuse a table whose ids, label or columns cannot be used in the agreed job. No model is built, nothing kept.

    A party may join first and write later where its data lie. Then `run` is the first to look.
    """
    path = folder / "job.toml"
    data = party_tree(folder).get("data", {})
    if "path" not in data:
        return
    if read_toml(path).get("kind") == "discovery":
        _check_columns(folder, me)
        return
    job = load_job(path)
    if me in (job.parties.active, *job.parties.passive) and isinstance(job.data, TableFileOptions):
        from veracausa.federation.rows import SiteTable
        from veracausa.federation.training_site import own_job

        SiteTable(own_job(folder, me), me, folder).check()


def _check_columns(folder: Path, me: str) -> None:
    from veracausa.federation.columns import SiteColumns
    from veracausa.federation.discovery_job import drops_rows, read_agreed
    from veracausa.federation.discovery_site import own_table

    job, method = read_agreed(folder / "job.toml")
    if me in job.parties:
        SiteColumns(job, own_table(folder), me, folder, drops_rows(method))
