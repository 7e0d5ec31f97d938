"""What a report shows of a table that was read: which columns, and a few rows beside what an attack made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veracausa.runs.audit_coverage import columns_read, snapshots, worst
from veracausa.runs.record import mapping


@dataclass(frozen=True)
class TableRead:
    """One party's table as the strongest attack read it."""

    party: str
    at: str
    """At which snapshot."""
    columns: list[tuple[str, float | None]]
    """Leakage by column, most first; None where there is nothing to learn."""
    names: list[str]
    """The columns of the rows."""
    rows: list[dict[str, Any]]
    """`position`, `original` and `read`, from the row read best to the one read worst."""


def tables_read(run: Path, entry: Mapping[str, Any]) -> list[TableRead]:
    """Of every party whose rows are a table; empty for pictures."""
    found = []
    for party, columns in columns_read(entry).items():
        kept = _rows(run / "attacks" / str(mapping(entry.get("settings")).get("name", "")) / f"rows-{party}.json")
        at = worst(snapshots({party: mapping(entry.get("parties"))[party]})).at
        found.append(TableRead(party, at, columns, list(kept.get("columns", ())), list(kept.get("rows", ()))))
    return found


def _rows(path: Path) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
