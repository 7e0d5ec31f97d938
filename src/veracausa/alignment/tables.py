"""Tables to be aligned, as files: their ids as text, and what is written when the common rows are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veracausa.alignment.program import Aligned
from veracausa.data.ids import TableFile, texts
from veracausa.data.table_files import MISSING, header_of, read_table
from veracausa.errors import InputError

if TYPE_CHECKING:
    import polars as pl

PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class IdTable:
    """The rows of one file, as they are written there, and the ids of its rows."""

    path: Path
    frame: pl.DataFrame
    ids: list[str]
    separator: str = ","


def read_id_table(path: Path, column: str, separator: str = ",") -> IdTable:
    """The table with its ids; a missing id is refused by its row's number."""
    # All columns as text: leading zeros are part of an id, and what is written must be what was read.
    frame = read_table(path, separator, (), header_of(path, separator))
    TableFile(path, frame, column)  # refuses a column that is not there
    ids = []
    for row, text in enumerate(texts(frame[column]), 1):
        if text is None or text.strip() in MISSING:
            raise InputError(f"{path}: row {row}: the id ({column!r}) is missing; fill it in or remove the row")
        ids.append(text)
    return IdTable(path, frame, ids, separator)


def write_aligned(table: IdTable, found: Aligned, folder: Path, party: str, rows_only: bool = False) -> list[Path]:
    """Write the party's rows in the agreed order, and which row stands at which place of it; rows count from 1."""
    import polars as pl

    held = (found.rows >= 0).nonzero().flatten()
    rows = np.asarray(found.rows[held])
    index = folder / f"{party}.index.csv"
    pl.DataFrame({"place": np.asarray(held) + 1, "row": rows + 1}).write_csv(index)
    if rows_only:
        return [index]
    # What was packed by gzip is written unpacked.
    place = table.path.with_suffix("") if table.path.suffix.lower() == ".gz" else table.path
    target = folder / f"{party}{place.suffix.lower() or '.csv'}"
    aligned = table.frame[rows]
    if target.suffix in PARQUET:
        aligned.write_parquet(target)
    else:
        aligned.write_csv(target, separator=table.separator)
    return [target, index]
