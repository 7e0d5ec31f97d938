"""Texts without the folders of this machine: a page is passed on, and its reader need not know who worked where."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

_START = r"(?:file://)?(?:~?/|[A-Za-z]:[\\/])"
_QUOTED = re.compile(rf"""(?P<quote>["']){_START}[^"'\n]*[\\/](?P<name>[^"'\n\\/]*)(?P=quote)""")
_BARE = re.compile(rf"""(?<![\w/:.~…"'\\-]){_START}(?:[^\s"'<>|:;,()\[\]\\/]+[\\/]+)+""")

_PICTURE = "data:image/png;base64,"


def without_paths(text: str) -> str:
    """The text with `…/train.csv` for `/home/ada/study/train.csv`; relative paths and web addresses stay.

    A folder whose name has a space is known for one in quotation marks, or in the home or the working folder.
    """
    if "/" not in text and "\\" not in text:
        return text
    for folder in {str(Path.cwd()), str(Path.home())} - {"/"}:
        text = re.sub(rf"(?<![\w/.~-]){re.escape(folder)}(?=[\\/])", "~", text)
    text = _QUOTED.sub(lambda found: f"{found['quote']}…/{found['name']}{found['quote']}", text)
    return _BARE.sub("…/", text)


def shown(value: Any) -> Any:
    """What a template prints of a value: text without paths. Markup was made by this package and stays as it is."""
    if value is None or isinstance(value, Markup | int | float):
        return value
    text = str(value)
    return text if text.startswith(_PICTURE) else without_paths(text)
