"""Defenses: what a passive party does to a representation before anything leaves it.

`base` is the contract, `protocols` what a defense may add to it, `methods/` holds one file a defense and `causshield/`
the defense that is larger than a file. `noise`, `mask`, `sensitivity` and `proxy_adversary` are what several share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veracausa.registry import Registry

if TYPE_CHECKING:
    from veracausa.defenses.base import Defense

defenses: Registry[type[Defense]] = Registry(
    "defense", "veracausa.defenses", "veracausa.defenses.methods", "veracausa.defenses.causshield"
)
