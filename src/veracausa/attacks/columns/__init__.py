"""What a party of a discovery tries to read out of the features it opened: one attack a file."""

from collections.abc import Callable
from typing import Any

from veracausa.registry import Registry

feature_attacks: Registry[Callable[..., Any]] = Registry(
    "attack on features",
    "veracausa.column_attacks",
    "veracausa.attacks.methods.columns",
    old_groups=("veracausa.discovery.audit.attacks",),
)
