"""Cross moments: sums over rows of products of two parties' features, opened as a whole to one receiver.

`MomentParty` is one party's program over a link. `MomentPlan` is what all agree on, and `Moments` what the receiver
has. `moments_of` computes the same integers in one place.
"""

from __future__ import annotations

from veracausa.crypto.moments.account import MomentAccount
from veracausa.crypto.moments.encoding import Blocks, ColumnSupport, column_support, cut, default_clip
from veracausa.crypto.moments.engine import BlockEngine, InPlaceEngine
from veracausa.crypto.moments.party import MomentParty
from veracausa.crypto.moments.plan import MomentPlan, most_bits
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
