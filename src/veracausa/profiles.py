"""Profiles: files of settings that a method's own settings are laid over."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from veracausa.registry import did_you_mean

PROFILES = ("paper", "recommended")
"""What a paper states, and what was measured to be worth its price."""


def read_profile(folder: Path, name: str) -> dict[str, Any]:
    """The settings of a profile file."""
    return tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))


def over_profile(given: Any, folder: Path, default: str) -> Any:
    """What was given, over the settings of the profile that it names; a validator's argument and answer."""
    if not isinstance(given, dict):
        return given
    name = given.get("profile", default)
    if name not in PROFILES:
        raise ValueError(f"profile: no profile is named {name!r}{did_you_mean(str(name), PROFILES)}")
    return {**read_profile(folder, name), **given}
