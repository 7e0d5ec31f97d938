"""What a job may say about the model it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from veracausa.registry import Options

Convention = Literal["N1", "N2", "N3"]
"""How a cut is counted: N1 units, N2 children of torchvision's ResNet, N3 weight layers on the main path."""


@dataclass(frozen=True, eq=False)
class _Permission:
    """Which factory this user allows, and which file names the model."""

    factory: str | None = None
    named_in: str = "job"

    def __eq__(self, other: object) -> bool:
        """It is no setting: two jobs that differ in nothing else are the same job."""
        return isinstance(other, _Permission)

    __hash__ = None  # type: ignore[assignment]


class ModelOptions(Options):
    """What every model takes; a model adds its own settings."""

    _permission: _Permission = PrivateAttr(default_factory=_Permission)
    """No file can set it, because it is no setting: it comes from whoever loads the job."""

    cut: int = Field(ge=1)
    """The last unit of the bottom model, counted from 1."""
    cut_convention: Convention = "N1"

    def payload_limit(self, columns: int | None) -> int | None:
        """The most numbers a row that a bottom sends, of a party whose table has so many columns; None: no limit.

        `columns` counts the table's own, before words become several numbers. None: the rows are no table.
        """
        return None

    @property
    def allowed(self) -> str | None:
        """The `package.module:factory` that this user named as one that may run, if any."""
        return self._permission.factory

    @property
    def named_in(self) -> str:
        """The file that names the model, for a reader of an error."""
        return self._permission.named_in

    def allow(self, factory: str | None, named_in: str) -> None:
        """Note which factory this user allows, and which file names the model."""
        self._permission = _Permission(factory, named_in)


class UserModel(ModelOptions):
    """What a model of the user's own, named `package.module:factory`, takes."""

    args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for the factory, after `shape` and `outputs`."""
