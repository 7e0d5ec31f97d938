"""What a party will send, said before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MESSAGE = 180
"""Bytes of a message beside its numbers, about."""


@dataclass(frozen=True)
class Declared:
    """What a party will send of one kind, as far as it can be known before anything runs."""

    kind: str
    to: tuple[str, ...]
    shape: str
    per: Literal["epoch", "run"]
    bytes: int | None
    """About so many to all receivers together; None: that depends on a partner, as `shape` says."""
