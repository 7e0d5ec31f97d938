"""Files that are either whole or not there, and cells of CSV files that no spreadsheet runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any


def atomic_write(path: Path, content: bytes, secret: bool = False) -> None:
    """Write a file so that a crash leaves either the old one or the new one, never half of it.

    Only its owner can read a `secret` one, from its first moment on.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if secret:
            temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
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


_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")


def safe(value: Any) -> Any:
    """The cell as it can be opened in a spreadsheet; anything but text is not changed."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _is_number(value):
        return value
    return f"'{value}"


def as_written(text: str) -> str:
    """The text that `safe` was given."""
    return text[1:] if _ESCAPED.match(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
