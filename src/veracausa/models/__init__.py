"""Models made of numbered units, and the cut between bottom and top."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from veracausa.registry import Options, Registry

models: Registry[Callable[..., Any]] = Registry("model", "veracausa.models.zoo")


class ModelOptions(Options):
    """What every model takes; a model adds its own settings."""

    cut: int = Field(ge=1)
    """The last unit of the bottom model, counted from 1."""
    cut_convention: Literal["N1", "N2", "N3"] = "N1"
