"""`veracausa list matrix`: what runs with what, found out by trying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_YES, _NO = "yes", "–"


def show(as_json: bool) -> None:
    """Find out what runs with what, and print it as tables or as one line of JSON."""
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.testing.compatibility import support_matrix

    with ProgressDisplay() as progress:
        found = support_matrix(lambda name: progress.begin(f"trying {name}"))
    if as_json:
        console.print_json_line({kind: {n: _plain(row) for n, row in rows.items()} for kind, rows in found.items()})
        return
    notes = _Notes()
    defenses, attacks, surrogates = found["defenses"], found["attacks"], found["surrogates"]
    names = list(next(iter(defenses.values())))
    half = names.index("overlap")
    _print("defenses", defenses, names[:half], notes)
    _print("", defenses, names[half:], notes)
    told = ("granted", "needs")
    _print("attacks", attacks, [name for name in next(iter(attacks.values())) if name not in told], notes)
    _print("", attacks, ["needs"], notes)
    # Each says in its own words that it is for other rows: one look at the table says as much.
    _print("surrogates of CausShield", surrogates, list(next(iter(surrogates.values()))), None)
    for number, why in enumerate(notes.reasons, 1):
        console.out.print(f"{number}  {why}", markup=False, soft_wrap=True)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for machines: whether it runs, and why not; what an attack declares as it is."""
    return {
        column: {"runs": not value, **({"why": value} if value else {})} if isinstance(value, str) else value
        for column, value in row.items()
    }


class _Notes:
    """Every reason once, by number."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def number(self, why: str) -> int:
        if why not in self.reasons:
            self.reasons.append(why)
        return self.reasons.index(why) + 1


def _print(title: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str], notes: _Notes | None) -> None:
    from rich.table import Table

    from veracausa.cli import console

    if title:
        console.out.print(f"[bold]{title}[/bold]")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, min_width=max(map(len, column.split())))
    for name, row in rows.items():
        table.add_row(name, *(_cell(row[column], notes) for column in columns))
    console.out.print(table)
    console.out.print()


def _cell(value: Any, notes: _Notes | None) -> str:
    if isinstance(value, bool):
        return _YES if value else _NO
    if isinstance(value, list):
        return ", ".join(value)
    if not value:
        return _YES
    return _NO if notes is None else f"{_NO} {notes.number(value)}"
