"""An alignment of several files on one machine, for one operator: read their ids, run every party, write the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from veracausa.alignment.program import FEW, Aligned, AlignmentProgram
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.data.array_files import is_array_file
from veracausa.data.ids import TableFile, texts
from veracausa.data.table_files import MISSING, header_of, read_table
from veracausa.errors import InputError
from veracausa.events import Event, Observer, event_of
from veracausa.runs.machine import usable_cores
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link

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
    place = place.with_suffix(".parquet") if is_array_file(place) else place
    target = folder / f"{party}{place.suffix.lower() or '.csv'}"
    aligned = table.frame[rows]
    if target.suffix in PARQUET:
        aligned.write_parquet(target)
    else:
        aligned.write_csv(target, separator=table.separator)
    return [target, index]


class _Party:
    """Hands what its program ended with to whoever started it."""

    def __init__(self, program: AlignmentProgram) -> None:
        self.program = program

    def __call__(self, link: Link, notify: Observer) -> None:
        found = self.program(link, notify)
        notify(
            {
                "event": "aligned",
                "party": link.me,
                "rows": found.rows.tolist(),
                "own": found.own,
                "announced": dict(found.announced),
                "common": dict(found.common),
                "warnings": list(found.warnings),
                "bytes": link.ledger.bytes_sent,
            }
        )


def align_embedded(
    ids: Mapping[str, Sequence[str]],
    settings: AlignmentSettings,
    own: OwnOptions | None = None,
    launch: Launch | None = None,
    notify: Observer = lambda event: None,
    sources: Mapping[str, str] | None = None,
) -> dict[str, Aligned]:
    """Every party's rows in the agreed order. The cores are shared out between the parties."""
    own = own or OwnOptions()
    if own.workers is None and sum(map(len, ids.values())) >= FEW:
        own = own.model_copy(update={"workers": max(1, usable_cores() // len(ids))})
    programs = {}
    for name in settings.parties:
        # How many rows the active party has cannot be hidden where they are the agreed order.
        hides = settings.mode == "all" or name != settings.parties[0]
        options = own if hides else own.model_copy(update={"pad_to": 0})
        source = (sources or {}).get(name, f"ids of {name}")
        programs[name] = _Party(AlignmentProgram(ids[name], settings, options, source))
    found: dict[str, Aligned] = {}

    def hear(event: Event) -> None:
        if event["event"] == "aligned":
            rows = torch.tensor(event["rows"], dtype=torch.int64)
            found[event["party"]] = Aligned(
                rows, event["own"], event["announced"], event["common"], tuple(event["warnings"])
            )
            notify(event_of("aligned", {key: value for key, value in event.items() if key != "rows"}))
        else:
            notify(event)

    (launch or Launch()).run(programs, hear)
    return {name: found[name] for name in settings.parties}
