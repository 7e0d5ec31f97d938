"""Feature maps: what a party makes of its own rows at home, before anything but sums over rows may leave it.

`base` is the contract, `methods/` holds one file a map. Blind training and discovery from moments draw on this room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veracausa.registry import Registry

if TYPE_CHECKING:
    from veracausa.features.base import FeatureMap

feature_maps: Registry[type[FeatureMap]] = Registry("feature map", "veracausa.features", "veracausa.features.methods")
