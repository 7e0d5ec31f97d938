"""Files that are either whole or not there."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves either the old one or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.filename is None or error.filename == str(temporary):
            # Writing itself does not say where: whoever reads the sentence wants to know which file it was.
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
