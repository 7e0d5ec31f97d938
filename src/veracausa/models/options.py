"""What a job may say about the model it trains."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from veracausa.registry import Options

Convention = Literal["N1", "N2", "N3"]
"""How a cut is counted: N1 units, N2 children of torchvision's ResNet, N3 weight layers on the main path."""


class ModelOptions(Options):
    """What every model takes; a model adds its own settings."""

    cut: int = Field(ge=1)
    """The last unit of the bottom model, counted from 1."""
    cut_convention: Convention = "N1"

    def payload_limit(self, columns: int | None) -> int | None:
        """The most numbers a row that a bottom sends, of a party whose table has so many columns; None: no limit.

        `columns` counts the table's own, before words become several numbers. None: the rows are no table.
        """
        return None


class UserModel(ModelOptions):
    """What a model of the user's own, named `package.module:factory`, takes."""

    args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for the factory, after `shape` and `outputs`."""
