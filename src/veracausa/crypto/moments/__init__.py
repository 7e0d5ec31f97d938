"""Cross moments: sums over rows of products of two parties' features, opened as a whole to one receiver.

`MomentParty` is one party's program over a link. `MomentPlan` is what all agree on, and `Moments` what the receiver
has. `moments_of` computes the same integers in one place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from veracausa.crypto.moments.account import MomentAccount
from veracausa.crypto.moments.encoding import Blocks, ColumnSupport, column_support, cut, default_clip
from veracausa.crypto.moments.engine import BlockEngine, InPlaceEngine
from veracausa.crypto.moments.plan import MomentPlan, most_bits

if TYPE_CHECKING:
    from veracausa.crypto.moments.party import MomentParty
    from veracausa.crypto.moments.result import Moments, moments_of

__all__ = [
    "BlockEngine",
    "Blocks",
    "ColumnSupport",
    "InPlaceEngine",
    "MomentAccount",
    "MomentParty",
    "MomentPlan",
    "Moments",
    "column_support",
    "cut",
    "default_clip",
    "moments_of",
    "most_bits",
]

_HOMES = {"MomentParty": "party", "Moments": "result", "moments_of": "result"}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first used: an engine's workers do without it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
