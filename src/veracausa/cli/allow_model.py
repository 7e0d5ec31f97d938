"""The option with which a user allows a model that is code: the job's word alone runs nothing."""

from __future__ import annotations

from typing import Annotated

import typer

AllowModel = Annotated[
    str | None,
    typer.Option(
        "--allow-model",
        metavar="PACKAGE.MODULE:FACTORY",
        help="Run this code, if it is the model that the job names. Name only code you trust.",
    ),
]
