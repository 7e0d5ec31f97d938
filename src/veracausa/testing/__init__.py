"""What plug-in authors and our own tests use: contract checks, made-up data, and what runs with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veracausa.testing.attack import check_attack as check_attack
    from veracausa.testing.defense import check_defense as check_defense
    from veracausa.testing.method import check_method as check_method

__all__ = ["check_attack", "check_defense", "check_method"]

_HOMES = {name: f"veracausa.testing.{name.removeprefix('check_')}" for name in __all__}


def __getattr__(name: str) -> Any:
    """Checks, imported when first used: the command line asks for the matrix without them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'veracausa.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
