"""Defenses: what a passive party does to a representation before anything leaves it."""

from collections.abc import Callable
from typing import Any

from veracausa.registry import Registry

defenses: Registry[Callable[..., Any]] = Registry(
    "defense", "veracausa.defenses", "veracausa.defenses.methods", "veracausa.defenses.causshield"
)
