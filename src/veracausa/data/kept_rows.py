"""Rows that were given in Python, kept as Parquet files in the folder of their run.

The files lie in `rows/`. A file's name says whose rows it has and what is in it, so that a run finds its own rows
after its folder was moved or copied, and other rows are known for what they are.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from veracausa.atomic import atomic_write

if TYPE_CHECKING:
    import polars as pl

FOLDER = "rows"
ABOVE = 4
"""How many folders up a run's rows may lie: an audit trains again in folders within the run's own."""
_NAME = re.compile(r"[\w-]+-[0-9a-f]{16}\.parquet")


def kept_name(whose: str, frame: pl.DataFrame) -> str:
    """The file's name: whose rows, and a digest of columns, types and values, whatever a writer makes of them."""
    import polars as pl

    seen = hashlib.sha256(repr([(name, str(kind)) for name, kind in frame.schema.items()]).encode())
    spans = [name for name, kind in frame.schema.items() if kind == pl.Duration]  # CSV has no word for them
    seen.update(frame.with_columns(pl.col(spans).cast(pl.Int64)).write_csv(null_value="\0").encode())
    return f"{whose}-{seen.hexdigest()[:16]}.parquet"


def is_kept(path: Any) -> TypeGuard[str]:
    """Whether a path is that of rows which a run keeps."""
    return isinstance(path, str) and Path(path).parent.name == FOLDER and bool(_NAME.fullmatch(Path(path).name))


def kept_note(run: Path) -> tuple[str, ...]:
    """What a reader of a run must know that keeps its rows."""
    if not (run / FOLDER).is_dir():
        return ()
    return (
        f"the rows were given in Python; {FOLDER}/ in the run's folder keeps them, to audit and to resume: "
        "remove it before you hand the folder on",
    )


def write_rows(path: Path, frame: pl.DataFrame) -> None:
    """Keep the rows at `path`, for their owner's eyes only."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    content = io.BytesIO()
    frame.write_parquet(content)
    atomic_write(path, content.getvalue(), secret=True)


def find_rows(tree: dict[str, Any], folder: Path) -> None:
    """Let a job that was read from a run's folder name its kept rows where they lie now: there, or a little above."""
    for data in _sections(tree):
        if is_kept(path := data.get("path")):
            here = folder.absolute()
            as_written = path if Path(path).is_file() else str(here / FOLDER / Path(path).name)
            near = (place / FOLDER / Path(path).name for place in [here, *here.parents][: ABOVE + 1])
            data["path"] = str(next((place for place in near if place.is_file()), as_written))


def without_place(tree: dict[str, Any]) -> None:
    """Let a job's settings name kept rows by what they are, not by where: two runs may keep the same rows."""
    for data in _sections(tree):
        if is_kept(path := data.get("path")):
            data["path"] = Path(path).name


def _sections(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parties = tree.get("party")
    own = [one.get("data") for one in parties.values() if isinstance(one, dict)] if isinstance(parties, dict) else []
    yield from (section for section in (tree.get("data"), *own) if isinstance(section, dict))
