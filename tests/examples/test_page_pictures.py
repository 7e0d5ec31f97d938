"""The pictures of pages: the docs show every one that is kept, and none is large."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_picture_is_shown_and_small() -> None:
    spec = importlib.util.spec_from_file_location("page_pictures", ROOT / "tools" / "page_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    names = {tool.file_name(*key) for key in tool.SHOWN}
    kept = {path.stem: path.stat().st_size for path in (ROOT / "docs" / "images").glob("page-*.png")}
    assert set(kept) == names
    assert max(kept.values()) < tool.MOST_BYTES
    assert tool.unused(sorted(names)) == []
