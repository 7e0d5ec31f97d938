"""What a benchmark reports: our seconds beside those of what it is measured against, from one run on one machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from veracausa.experiments.defense_times import TimeRow
from veracausa.runs.machine import describe_machine

Row = TimeRow


def alternate(sides: Mapping[str, Callable[[], float]], repeats: int, warm_up: bool = True) -> dict[str, list[float]]:
    """The seconds that each side reports, `repeats` times.

    The sides take turns, so that a machine that slows down slows both. With `warm_up` the first round of each is thrown
    away; sides that warm themselves up need none.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(repeats + warm_up):
        for name, measure in sides.items():
            taken = measure()
            if round_number >= warm_up:
                seconds[name].append(taken)
    return seconds


def report(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The rows and the machine, as they are printed and written."""
    return {"bench": name, "rows": [row.as_dict() for row in rows], "machine": describe_machine()}


def print_rows(name: str, rows: Sequence[Row], for_machines: bool) -> None:
    """Show the rows as a table; with `for_machines` the last line of standard output is for machines."""
    from rich.console import Console
    from rich.table import Table

    # The table goes to standard error when a machine reads standard output.
    console = Console(file=sys.stderr if for_machines else sys.stdout)
    if not console.is_terminal:
        console.width = 200  # a log has no edge to wrap at
    for number, group in enumerate(_alike(rows)):
        table = Table(title=f"bench {name}" if not number else None, box=None, pad_edge=False)
        for i, title in enumerate(_titles(group)):
            table.add_column(title, justify="left" if i in (0, 2) else "right", no_wrap=i == 0)
        for row in group:
            table.add_row(*_cells(row, group))
        console.print(table, *([""] if len(rows) > len(group) else []))
    if for_machines:
        print(json.dumps(report(name, rows)), flush=True)


def write_rows(name: str, rows: Sequence[Row], out: Path | None) -> None:
    """Write `NAME.json` and `NAME.md` into `out`, if there is one."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    whole = report(name, rows)
    (out / f"{name}.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    tables = []
    for group in _alike(rows):
        titles = _titles(group)
        lines = [titles, ["---"] * len(titles), *([*_cells(row, group)] for row in group)]
        tables.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    table = "\n\n".join(tables)
    machine = ", ".join(f"{key} {value}" for key, value in whole["machine"].items())
    (out / f"{name}.md").write_text(f"# bench {name}\n\n{table}\n\n{machine}\n", encoding="utf-8")


def _alike(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in groups that have something beside them in common, or nothing: one table would be mostly empty."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(next(iter(row.extra), ""), []).append(row)
    return list(groups.values())


def _extras(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.extra))


def _titles(rows: Sequence[Row]) -> list[str]:
    return ["case", "seconds", "against", "its seconds", "ratio", *_extras(rows)]


def _cells(row: Row, rows: Sequence[Row]) -> list[str]:
    extras = [f"{row.extra[name]:.4g}" if name in row.extra else "" for name in _extras(rows)]
    return [row.case, f"{row.seconds:.3g}", row.against, f"{row.against_seconds:.3g}", f"{row.ratio:.2f}", *extras]
