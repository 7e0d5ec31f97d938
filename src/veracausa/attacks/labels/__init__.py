"""Label inference: what a passive party learns of the labels from the gradients that come back to it."""

from collections.abc import Callable
from typing import Any

from veracausa.registry import Registry

label_attacks: Registry[Callable[..., Any]] = Registry(
    "label attack", "veracausa.label_attacks", "veracausa.attacks.methods.labels"
)
