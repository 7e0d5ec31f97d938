"""From tables to tables in one order: the parties' protocol, run on one machine, and what it found written down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from veracausa.alignment.embedded import align_embedded, read_id_table, write_aligned
from veracausa.alignment.program import Aligned
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.wire.launch import Launch


def align(
    files: Mapping[str, str | Path],
    id: str | Mapping[str, str],
    out: str | Path = "aligned",
    *,
    mode: Literal["all", "active"] = "all",
    case_fold: bool = False,
    whole_numbers: bool = True,
    pad_to: int = 0,
    max_ids: int | None = None,
    min_share: float = 0.01,
    rows_only: bool = False,
    separator: str = ",",
    link: Literal["threads", "processes"] = "threads",
    workers: int | None = None,
    observer: Observer = lambda event: None,
) -> dict[str, Any]:
    """Find the rows that tables of several parties share, by private set intersection, and write them in one order.

    The counts come back, and where each table was written. `report.json` in the folder `out` has the same.

    files: party -> its table, the active party first. CSV or Parquet.
    id: the column of ids; of all, or party -> its column.
    out: a new folder.
    mode: `all`: rows that everybody has. `active`: the active party's rows, whoever has them.
    case_fold: take ab-1 and AB-1 for the same id.
    whole_numbers: take 17.0 for the id 17.
    pad_to: announce at least so many ids a party; in mode `active`, a passive one.
    max_ids: refuse a party that brings more.
    min_share: warn if less of a party's ids are in common.
    rows_only: write which rows, and no tables.
    separator: between the fields of CSV files.
    link: parties as threads or as processes.
    workers: processes a party that mask ids. Default: the cores, shared.
    observer: hears every `veracausa.events.Event`.

    >>> found = veracausa.align({"bank": "bank.csv", "clinic": "clinic.csv"}, id="person", out="aligned")
    >>> found["length"], found["parties"]["bank"]["written"]
    """
    paths = {party: Path(path) for party, path in files.items()}
    folder = Path(out)
    if len(paths) < 2:
        raise InputError("align: give the files of at least two parties, the active party's first")
    for party in paths:
        if not party or "/" in party or party.startswith("."):
            raise InputError(f"align: {party!r} cannot be a party's name; use letters, digits, - and _")
    columns = {party: id if isinstance(id, str) else id.get(party, "") for party in paths}
    for party, column in columns.items():
        if not column:
            raise InputError(f"--id: party {party!r} has none; add --id {party}=COLUMN")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out {folder}: is there already; name a new folder")
    settings = AlignmentSettings(parties=tuple(paths), mode=mode, case_fold=case_fold, whole_numbers=whole_numbers)
    own = OwnOptions(pad_to=pad_to, max_ids=max_ids, min_share=min_share, workers=workers)
    if len(separator) != 1:
        raise InputError(f"--separator {separator!r}: must be one character, such as ';'")
    tables = {party: read_id_table(path, columns[party], separator) for party, path in paths.items()}
    ids = {party: table.ids for party, table in tables.items()}
    found = align_embedded(ids, settings, own, Launch(link), observer, {p: str(path) for p, path in paths.items()})
    if not any(found[party].held for party in settings.parties[1:]):
        raise InputError(
            f"{' and '.join(map(str, paths.values()))} have no id in common; "
            "check that the id columns name the same people in the same way"
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = {p: write_aligned(tables[p], found[p], folder, p, rows_only) for p in settings.parties}
    summary = _summary(mode, paths, found, written)
    (folder / "report.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _summary(
    mode: str, paths: Mapping[str, Path], found: Mapping[str, Aligned], written: Mapping[str, Sequence[Path]]
) -> dict[str, Any]:
    first = next(iter(found.values()))
    return {
        "mode": mode,
        "length": len(first.rows),
        "parties": {
            party: {
                "file": str(paths[party]),
                "rows": one.own,
                "announced": first.announced[party],
                "held": one.held,
                "share": one.held / one.own,
                "written": [str(path) for path in written[party]],
            }
            for party, one in found.items()
        },
        "warnings": sorted({warning for one in found.values() for warning in one.warnings}),
    }
