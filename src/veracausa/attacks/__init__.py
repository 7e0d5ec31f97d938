"""Attacks: what a curious partner reads out of what it receives."""

from collections.abc import Callable
from typing import Any

from veracausa.registry import Registry

attacks: Registry[Callable[..., Any]] = Registry("attack", "veracausa.attacks", "veracausa.attacks.methods.features")
