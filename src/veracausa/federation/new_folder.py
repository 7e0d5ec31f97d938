"""A folder that is either whole or not there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veracausa.errors import InputError


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, readable by its owner alone, that takes its name when all went well, and else is gone."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: there is something already, and it may hold keys; name another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield scratch
        scratch.rename(path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
