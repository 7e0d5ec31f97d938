"""Defenses: what a passive party does to a representation before anything leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veracausa.registry import Registry

if TYPE_CHECKING:
    from veracausa.defenses.base import Defense

defenses: Registry[type[Defense]] = Registry(
    "defense", "veracausa.defenses", "veracausa.defenses.methods", "veracausa.defenses.causshield"
)
