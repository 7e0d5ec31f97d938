"""`veracausa list`: what a job can choose from, and the runs there are."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from veracausa.registry import Registry


_REQUIRED = "required"


class What(StrEnum):
    datasets = "datasets"
    models = "models"
    defenses = "defenses"
    attacks = "attacks"
    label_attacks = "label_attacks"
    runs = "runs"
    matrix = "matrix"
    all = "all"


def list_(
    what: Annotated[What, typer.Argument(help="What to list.")] = What.all,
    folder: Annotated[Path, typer.Option("--in", help="The folder that holds the runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one line of JSON.")] = False,
) -> None:
    """List data sets, models, defenses and attacks with their settings, and runs; `matrix`: what runs with what.

    The matrix is found out by tiny trials, which take some seconds.
    """
    from veracausa.cli import console

    if what is What.matrix:
        from veracausa.cli import matrix

        matrix.show(as_json)
        return
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in What if what is What.all else (what,):
        if kind is What.runs:
            found[kind.value] = _runs(folder)
        elif kind not in (What.all, What.matrix):
            found[kind.value] = [_entry(_registry(kind), name) for name in _registry(kind).names()]
    if as_json:
        console.print_json_line(found)
        return
    for i, (kind_name, rows) in enumerate(found.items()):
        if i:
            console.out.print()
        console.out.print(f"[bold]{kind_name}[/bold]")
        if kind_name == What.runs.value:
            _print_runs(rows, folder)
        else:
            _print_entries(rows)


def _registry(kind: What) -> Registry[Any]:
    if kind is What.datasets:
        from veracausa.data.sources import datasets

        return datasets
    if kind is What.models:
        from veracausa.models import models

        return models
    if kind is What.attacks:
        from veracausa.attacks import attacks

        return attacks
    if kind is What.label_attacks:
        from veracausa.attacks import label_attacks

        return label_attacks
    from veracausa.defenses import defenses

    return defenses


def _entry(registry: Registry[Any], name: str) -> dict[str, Any]:
    described = " ".join((registry.get(name).__doc__ or "").split("\n\n")[0].split())
    known = registry.options(name)
    try:
        made = known(name=name)  # a profile may stand behind the defaults of the fields
    except ValueError:
        made = None
    settings = {
        field: _plain(getattr(made, field))
        if made is not None
        else _REQUIRED
        if info.is_required()
        else _plain(info.get_default(call_default_factory=True))
        for field, info in known.model_fields.items()
        if field != "name"
    }
    return {"name": name, "description": described, "settings": settings}


def _plain(value: Any) -> Any:
    """A default that has settings of its own, as a job would write it."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _runs(folder: Path) -> list[dict[str, Any]]:
    from veracausa.errors import InputError
    from veracausa.report.compare import compare

    rows = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir():
            try:
                rows += compare([path])
            except InputError:
                continue  # some other folder
    return rows


def _print_entries(rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in rows:
        settings = ", ".join(
            f"{name} {value}" if value == _REQUIRED else f"{name} = {_value(value)}"
            for name, value in row["settings"].items()
        )
        table.add_row(escape(row["name"]), escape(row["description"]))
        if settings:
            table.add_row("", f"[dim]{escape(settings)}[/dim]")
    console.out.print(table if rows else "none")


def _value(value: Any) -> str:
    """As a job would say it."""
    return "not set" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _print_runs(rows: list[dict[str, Any]], folder: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.report.figures import format_bytes, format_score

    if not rows:
        console.out.print(f"none in {folder}; `veracausa demo` makes one", markup=False)
        return
    table = Table("run", "state", "data", "model", box=None, pad_edge=False)
    table.add_column("test score", justify="right")
    table.add_column("bytes", justify="right")
    for row in rows:
        score = next((name for name in ("accuracy", "rmse", "loss") if name in row["test"]), None)
        shown = "" if score is None else f"{score} {format_score(score, row['test'][score])}"
        cells = (row["name"], row["state"], row["data"], row["model"], shown, format_bytes(row["bytes_sent"]))
        table.add_row(*map(escape, cells))
    console.out.print(table)
