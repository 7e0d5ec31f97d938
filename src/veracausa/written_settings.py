"""How settings are written down: a TOML file, `a.b=value` on a command line, a mapping from Python."""

from __future__ import annotations

import os
import reprlib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from veracausa.errors import InputError


def as_setting(value: Any) -> Any:
    """What a mapping from Python may hold beside what TOML can say."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "columns") or hasattr(value, "__array__"):
        raise InputError(
            f"job: a {type(value).__name__} is no setting; give rows beside the job, as data={{party: rows}}"
        )
    raise InputError(f"job: a {type(value).__name__} ({reprlib.repr(value)}) is no setting")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; `veracausa init {path}` writes one to start from") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a job file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def parse_setting(text: str, form: str = "a.b=value", option: str = "--set") -> tuple[list[str], Any]:
    """`a.b=value` as the words of its name and its value, which is TOML or else the text as it stands.

    Every `--set` of every command is read here. `form` is what a wrong one is told to look like.
    """
    name, separator, written = text.partition("=")
    if not separator or not name.strip():
        raise InputError(f"{option} {text}: write it as {form}")
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        value = written.strip()
    return name.strip().split("."), value


def section_of(tree: dict[str, Any], path: Sequence[str], text: str) -> dict[str, Any]:
    """The section of a tree of settings that `path` names, made where it is missing; `text` is what asked for it."""
    for name in path:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise InputError(f"--set {text}: {name} is a value, it has no settings of its own")
    return tree


def chooses(path: Sequence[str]) -> bool:
    """Whether a setting names the data set, the model, the defense, its surrogate or the feature map."""
    return path[-1] == "name" and len(path) > 1 and path[-2] in ("data", "model", "defense", "surrogate", "features")
