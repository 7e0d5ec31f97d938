"""Attacks: what a curious partner reads out of what it receives.

There are four surfaces: the rows behind payloads, the labels behind gradients, the columns behind the features of a
discovery, and what is opened in blind training (sums over rows, scores of predicted rows). `methods/` has one file an
attack or a family of attacks; what they share lies here, beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veracausa.registry import Registry

if TYPE_CHECKING:
    from veracausa.attacks.base import FeatureAttack
    from veracausa.attacks.blind import BlindAttack
    from veracausa.attacks.columns import ColumnAttack
    from veracausa.attacks.labels import LabelAttack

attacks: Registry[type[FeatureAttack]] = Registry("attack", "veracausa.attacks", "veracausa.attacks.methods.features")
label_attacks: Registry[type[LabelAttack]] = Registry(
    "label attack", "veracausa.label_attacks", "veracausa.attacks.methods.labels"
)
column_attacks: Registry[type[ColumnAttack]] = Registry(
    "attack on features",
    "veracausa.column_attacks",
    "veracausa.attacks.methods.columns",
    old_groups=("veracausa.discovery.audit.attacks",),
)
blind_attacks: Registry[type[BlindAttack]] = Registry(
    "attack on blind training", "veracausa.blind_attacks", "veracausa.attacks.methods.blind"
)

__all__ = ["attack_title", "attacks", "blind_attacks", "column_attacks", "label_attacks"]


def attack_title(name: str) -> str:
    """What a table calls an attack on rows; any other name stays as it is."""
    return attacks.get(name).title or name if name in attacks.names() else name
