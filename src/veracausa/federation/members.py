"""Reads `federation.toml`, and the TOML files of a member's folder."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from veracausa.errors import InputError, wrong_value
from veracausa.wire.network import NetworkOptions, WireLimits
from veracausa.written_settings import parse_setting


def wire_limits(settings: Sequence[str]) -> WireLimits:
    """The limits that a command's options set, each `name=value`."""
    given = (parse_setting(setting, "name=value", "--wire") for setting in settings)
    tree = {".".join(path): value for path, value in given}
    try:
        return WireLimits.model_validate(tree)
    except ValidationError as error:
        raise InputError(
            f"--wire {first_problem(error)}; the limits are {', '.join(WireLimits.model_fields)}"
        ) from None


def read_network(path: Path) -> NetworkOptions:
    """The federation that a file describes."""
    try:
        return NetworkOptions.model_validate(read_toml(path, "`veracausa federation init` or `join` makes it"))
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}") from None


def read_toml(path: Path, hint: str = "`veracausa federation join` makes it") -> dict[str, Any]:
    """What a TOML file of a member's folder says; `hint` tells how to get one where there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {hint}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not valid TOML: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None


def first_problem(error: ValidationError) -> str:
    """The first problem of a description, as a sentence."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    message = wrong_value(problem)
    return f"{place}: {message}" if place else message
