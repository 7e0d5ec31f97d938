"""The option with which a user allows a model that is code: the job's word alone runs nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from veracausa.errors import InputError


def _checked(name: str | None) -> str | None:
    if name is not None and not all(part for part in name.partition(":")):
        raise InputError(f"--allow-model {name}: write it as package.module:factory")
    return name


AllowModel = Annotated[
    str | None,
    typer.Option(
        "--allow-model",
        metavar="PACKAGE.MODULE:FACTORY",
        callback=_checked,
        help="Run this code, if it is the model that the job names. Name only code you trust.",
    ),
]
