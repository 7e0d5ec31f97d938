"""The options with which a party says what is its own; they end in its party.toml and nowhere else."""

from __future__ import annotations

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


def names(columns: str | None) -> tuple[str, ...]:
    """The columns of a list with commas."""
    return tuple(name.strip() for name in (columns or "").split(",") if name.strip())
