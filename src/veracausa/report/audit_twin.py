"""The undefended baseline of an audited run: where it lies, and what it leaked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from veracausa.runs.folder import write_json
from veracausa.runs.record import mapping, numbers

FOLDER = "twin"
_POINTER = "twin.json"


def twin_folder(run: Path) -> Path | None:
    """The twin's run folder; None where there is none."""
    path = run / FOLDER
    with suppress(OSError, ValueError, KeyError, TypeError):  # nobody pointed at another one
        path = run / json.loads((run / _POINTER).read_text(encoding="utf-8"))["path"]
    return path if (path / "config.toml").is_file() else None


def point_at_twin(run: Path, twin: Path) -> None:
    """Let the run be compared with this twin from now on; the path is relative, so that both can move together."""
    write_json(run / _POINTER, {"path": os.path.relpath(twin.resolve(), run.resolve())})


def undefended_leakage(entry: Mapping[str, Any], party: str, split: str) -> float | None:
    """The most this attack reads of the same party's rows in the twin at any snapshot; None where nobody tried."""
    by_party = mapping(mapping(entry.get("undefended")).get("parties"))
    return numbers(by_party.get(party)).get(split)
