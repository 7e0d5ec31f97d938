"""One file a party, rows brought together by an id: what can not be brought together is refused in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veracausa.data.causal import CausalData
from veracausa.data.causal.table import _numbers, attributes
from veracausa.data.ids import TableFile, held_by_all
from veracausa.data.table_files import read_table
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl

CATEGORIES = 20


def read_party_files(files: Mapping[str, Path], on: str | None) -> tuple[CausalData, dict[str, tuple[str, ...]]]:
    """The columns of all files side by side, and which are whose.

    Rows belong together by the column `on`, which every file has; without it they are in the same order already.
    """
    tables = {party: TableFile(path, read_table(path), on) for party, path in files.items()}
    home: dict[str, Path] = {}
    for table in tables.values():
        for column in table.frame.columns:
            if column != on and column in home:
                raise InputError(
                    f"{table.path}: column {column!r} is also in {home[column]}; leave it in one of them, "
                    "or name it with --on if it says which rows belong together"
                )
            home[column] = table.path
    notes: list[str] = []
    frames = _aligned(list(tables.values()), on, notes)
    columns: dict[str, tuple[str, ...]] = {}
    values: list[np.ndarray] = []
    names: list[str] = []
    for (party, table), (frame, rows) in zip(tables.items(), frames, strict=True):
        own = attributes(frame.drop([on] if on else []), str(table.path), CATEGORIES, notes, rows)
        if not own:
            raise InputError(f"{table.path}: has no column but ids, names and dates; give it attributes")
        values += [_numbers(frame[column], str(table.path), CATEGORIES, notes, rows) for column in own]
        names += own
        columns[party] = own
    return CausalData(np.stack(values, axis=1), tuple(names), None, tuple(notes)), columns


def _aligned(tables: list[TableFile], on: str | None, notes: list[str]) -> list[tuple[pl.DataFrame, list[int] | None]]:
    first, *others = tables
    if on is None:
        for table in others:
            if table.frame.height != first.frame.height:
                raise InputError(
                    f"{table.path}: {table.frame.height} rows, but {first.path} has {first.frame.height}; "
                    "name the column that says which belong together with --on"
                )
        return [(table.frame, None) for table in tables]
    found = [table.find(first.ids) for table in tables]
    common = held_by_all(found)
    rows = int(common.sum())
    if not rows:
        raise InputError(
            f"--on {on}: {' and '.join(str(t.path) for t in tables)} have no id in common; check the column"
        )
    if any(table.frame.height != rows for table in tables):
        heights = ", ".join(f"{table.frame.height} of {table.path.name}" for table in tables)
        notes.append(f"{rows} rows have an id in every file ({heights})")
    kept = [rows_of[common] for rows_of in found]
    return [(table.take(rows_of), rows_of.tolist()) for table, rows_of in zip(tables, kept, strict=True)]
