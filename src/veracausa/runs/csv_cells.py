"""Cells of CSV files that people open in a spreadsheet, which runs a text that looks like a formula.

A text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return gets an apostrophe before it. A number stays a
number. `as_written` takes it back: what was written by `safe` is read as it was.
"""

from __future__ import annotations

import re
from typing import Any

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
