"""Where the undefended twin of an audited run lies: in the run's own folder, or where an audit was pointed at."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from veracausa.runs.folder import write_json

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
