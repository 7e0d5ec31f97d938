"""`veracausa align`: which rows several tables share, by the protocol that parties run across organisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from veracausa.cli.console import err, out, print_json_line, say
from veracausa.errors import InputError


class Mode(StrEnum):
    all = "all"
    active = "active"


class Ways(StrEnum):
    threads = "threads"
    processes = "processes"


def align(
    files: Annotated[
        list[str], typer.Argument(metavar="[PARTY=]FILE…", help="A table a party, the active party's first.")
    ],
    ids: Annotated[
        list[str],
        typer.Option(
            "--id", metavar="[PARTY=]COLUMN", help="The column of ids; once for all, or PARTY=COLUMN for each."
        ),
    ],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder for what is found.")] = Path(
        "aligned"
    ),
    mode: Annotated[
        Mode,
        typer.Option("--mode", help="all: rows that everybody has; active: the active party's rows, whoever has them."),
    ] = Mode.all,
    case_fold: Annotated[bool, typer.Option("--case-fold", help="Take ab-1 and AB-1 for the same id.")] = False,
    whole_numbers: Annotated[
        bool, typer.Option("--whole-numbers/--no-whole-numbers", help="Take 17.0 for the id 17.")
    ] = True,
    pad_to: Annotated[
        int,
        typer.Option("--pad-to", min=0, help="Announce at least so many ids a party; in mode active, a passive one."),
    ] = 0,
    max_ids: Annotated[
        int | None,
        typer.Option(
            "--max-ids",
            min=1,
            help="Refuse a party that brings more; default: 20 times what the other brings, and 1,000 in any case.",
        ),
    ] = None,
    min_share: Annotated[
        float, typer.Option("--min-share", min=0, max=1, help="Warn if less of a party's ids are in common.")
    ] = 0.01,
    rows_only: Annotated[bool, typer.Option("--rows-only", help="Write which rows, and no tables.")] = False,
    separator: Annotated[str, typer.Option("--separator", help="Between the fields of CSV files.")] = ",",
    link: Annotated[Ways, typer.Option("--link", help="Parties as threads or as processes.")] = Ways.threads,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, help="Processes a party that mask ids; default: the cores, shared."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as the last line.")] = False,
) -> None:
    """Find the rows that tables of several parties share, by private set intersection, and write them in one order."""
    paths = _named(files)
    columns = _columns(ids, list(paths))

    from veracausa.alignment.align import align as align_files
    from veracausa.cli.progress import ProgressDisplay

    with ProgressDisplay() as progress:
        summary = align_files(
            paths,
            columns,
            folder,
            mode=mode.value,
            case_fold=case_fold,
            whole_numbers=whole_numbers,
            pad_to=pad_to,
            max_ids=max_ids,
            min_share=min_share,
            rows_only=rows_only,
            separator=separator,
            link=link.value,
            workers=workers,
            observer=progress,
        )
    _show(summary)
    if as_json:
        print_json_line(summary)


def _named(files: Sequence[str]) -> dict[str, Path]:
    """Every file under its party's name: the one given, else the file's."""
    paths: dict[str, Path] = {}
    for item in files:
        name, given, path = item.partition("=")
        if not given or not name or "/" in name:
            name, path = Path(item).stem, item
        if name in paths:
            raise InputError(f"align: two files are of the party {name!r}; name one of them otherwise: NAME={path}")
        paths[name] = Path(path)
    if len(paths) < 2:
        raise InputError("align: give the files of at least two parties, the active party's first")
    return paths


def _columns(ids: Sequence[str], parties: Sequence[str]) -> dict[str, str]:
    """Every party's column of ids."""
    from veracausa.registry import did_you_mean

    of_all: str | None = None
    of_one: dict[str, str] = {}
    for item in ids:
        name, given, column = item.partition("=")
        if given and name in parties:
            of_one[name] = column
        elif given:  # a column's own name may hold the sign, and can be given party by party
            raise InputError(f"--id {item}: no party is named {name!r}{did_you_mean(name, parties)}")
        else:
            of_all = item
    for party in parties:
        if party not in of_one and of_all is None:
            raise InputError(f"--id: party {party!r} has none; add --id {party}=COLUMN")
    return {party: of_one.get(party, of_all or "") for party in parties}


def _show(summary: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table("party", "rows", "in the agreed order", "share of its rows", box=None, pad_edge=False)
    for party, one in summary["parties"].items():
        table.add_row(party, str(one["rows"]), f"{one['held']} of {summary['length']}", f"{100 * one['share']:.1f} %")
    out.print(table)
    for warning in summary["warnings"]:
        say(f"warning: {warning}", err)
    written = [path for one in summary["parties"].values() for path in one["written"]]
    out.print(f"written: {', '.join(written)}", markup=False, soft_wrap=True)
