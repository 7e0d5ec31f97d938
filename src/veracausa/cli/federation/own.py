"""The options with which a party says what is its own; they end in its party.toml and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[str | None, typer.Option("--data", metavar="FILE", help="This party's own table.")]
Id = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="The column that names a row.")]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="COL,COL", help="Its columns; default: all but id and label.")
]
Defense = Annotated[str | None, typer.Option("--defense", metavar="NAME", help="Its defense; see `veracausa list`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="K=V", help="data.K=V, defense.K=V or alignment.K=V of its own; repeatable."),
]


def code_in(job: Path, allow_model: str | None) -> list[str]:
    """What a member should know of a job whose model is code, in lines; refuses a permission for other code."""
    import tomllib

    from veracausa.errors import InputError
    from veracausa.escaping import escaped

    tree = tomllib.loads(job.read_text(encoding="utf-8"))
    model = tree.get("model", {})
    name = str(model.get("name", "")) if isinstance(model, dict) else ""
    if allow_model is not None and allow_model != name:
        raise InputError(f"--allow-model {allow_model}: the job's model is {name!r}; leave it out, or name that one")
    if ":" not in name or allow_model is not None:
        return []
    return [
        f"note: the job's model is {name!r}, code outside the registry. It runs nowhere unless the member itself "
        f'allows it: with [model] allow = "{escaped(name)}" in its party.toml, or --allow-model'
    ]


def check_data(folder: Path, member: str, place: Path) -> None:
    """Look at the member's own data; `place` is what its folder will be called, for messages."""
    from veracausa.errors import InputError
    from veracausa.federation.own_data import check_own_data

    try:
        check_own_data(folder, member)
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(place))) from None


def names(columns: str | None) -> tuple[str, ...]:
    """The columns of a list with commas."""
    return tuple(name.strip() for name in (columns or "").split(",") if name.strip())
