"""`veracausa list`: what can be chosen by name, the runs there are, and what runs with what, found out by trying."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.registry import Registry


_REQUIRED = "required"
_YES, _NO = "yes", "–"


class What(StrEnum):
    datasets = "datasets"
    models = "models"
    defenses = "defenses"
    features = "features"
    surrogates = "surrogates"
    attacks = "attacks"
    label_attacks = "label_attacks"
    column_attacks = "column_attacks"
    blind_attacks = "blind_attacks"
    methods = "methods"
    causal_data = "causal_data"
    encryptions = "encryptions"
    runs = "runs"
    matrix = "matrix"
    all = "all"


_REGISTRIES = {
    What.datasets: ("veracausa.data.sources", "datasets"),
    What.models: ("veracausa.models", "models"),
    What.defenses: ("veracausa.defenses", "defenses"),
    What.features: ("veracausa.features", "feature_maps"),
    What.surrogates: ("veracausa.defenses.causshield.surrogates", "surrogates"),
    What.attacks: ("veracausa.attacks", "attacks"),
    What.label_attacks: ("veracausa.attacks", "label_attacks"),
    What.column_attacks: ("veracausa.attacks", "column_attacks"),
    What.blind_attacks: ("veracausa.attacks", "blind_attacks"),
    What.methods: ("veracausa.discovery.methods", "methods"),
    What.causal_data: ("veracausa.data.causal", "causal_data"),
}
"""Where each registry is; imported when it is asked for."""


def list_(
    what: Annotated[
        str | None, typer.Argument(metavar="KIND", help="What to list, such as defenses, or all; default: names alone.")
    ] = None,
    folder: Annotated[Path, typer.Option("--in", help="The folder that holds the runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one line of JSON.")] = False,
) -> None:
    """List the names that can be chosen, and the runs; with a kind, what each name is and its settings.

    `all` gives every name a line. `matrix` says what runs with what. It is found out by tiny trials, which take some
    seconds.
    """
    from veracausa.cli import console
    from veracausa.registry import did_you_mean

    if what is not None and what not in tuple(What):
        raise InputError(f"list {what}: there is no such kind{did_you_mean(what, [kind.value for kind in What])}")
    kind = What(what or "all")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--in {folder}: is a file; name the folder that holds the runs")
    if kind is What.matrix:
        _show_matrix(as_json)
        return
    kinds = [*_REGISTRIES, What.encryptions, What.runs] if kind is What.all else [kind]
    found = {kind.value: _runs(folder) if kind is What.runs else _entries(kind) for kind in kinds}
    if as_json:
        console.print_json_line(found)
        return
    if what is None:
        _print_names(found)
        console.out.print("\n`veracausa list KIND` says what each name is, with its settings.\n", markup=False)
        found = {What.runs.value: found[What.runs.value]}
    for i, (kind_name, rows) in enumerate(found.items()):
        if i:
            console.out.print()
        console.out.print(f"[bold]{kind_name}[/bold]")
        if kind_name == What.runs.value:
            _print_runs(rows, folder)
        else:
            _print_entries(rows, with_settings=kind is not What.all)


def _entries(kind: What) -> list[dict[str, Any]]:
    if kind is What.encryptions:
        return _encryptions()
    module, name = _REGISTRIES[kind]
    registry: Registry[Any] = getattr(import_module(module), name)
    return [_entry(registry, name) for name in registry.names()]


def _encryptions() -> list[dict[str, Any]]:
    """Encryptions are no registry: their libraries need not be installed."""
    from veracausa.crypto.backends import ENCRYPTIONS, encryption_class

    def described(name: str) -> str:
        try:
            return _description(encryption_class(name))
        except InputError:
            return 'not installed; pip install "veracausa[he]"'

    return [{"name": name, "description": described(name), "settings": {}} for name in sorted(ENCRYPTIONS)]


def _description(thing: Any) -> str:
    """What it says of itself, or what its module says."""
    said = thing.__doc__ or import_module(thing.__module__).__doc__ or ""
    return " ".join(said.split("\n\n")[0].split())


def _entry(registry: Registry[Any], name: str) -> dict[str, Any]:
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
    return {"name": name, "description": _description(registry.get(name)), "settings": settings}


def _plain(value: Any) -> Any:
    """A default that has settings of its own, as a job would write it."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _runs(folder: Path) -> list[dict[str, Any]]:
    from veracausa.report.compare import compare

    rows = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir():
            try:
                rows += compare([path])
            except InputError:
                continue  # some other folder
    return rows


def _print_names(found: Mapping[str, list[dict[str, Any]]]) -> None:
    from rich.table import Table

    from veracausa.cli import console

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for kind, rows in found.items():
        if kind != What.runs.value:
            table.add_row(kind, ", ".join(row["name"] for row in rows))
    console.out.print(table)


def _print_entries(rows: list[dict[str, Any]], with_settings: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    longest = max((len(row["name"]) for row in rows), default=0)
    table.add_column(no_wrap=True, min_width=longest)  # names stay whole, descriptions give way
    room = max(20, console.out.width - longest - 4)
    table.add_column(no_wrap=not with_settings, overflow="fold" if with_settings else "ellipsis", max_width=room)
    for row in rows:
        settings = ", ".join(
            f"{name} {value}" if value == _REQUIRED else f"{name} = {_value(value)}"
            for name, value in row["settings"].items()
        )
        table.add_row(escape(row["name"]), escape(row["description"]))
        if settings and with_settings:
            table.add_row("", f"[dim]{escape(settings)}[/dim]")
    console.out.print(table if rows else "none")


def _value(value: Any) -> str:
    """As a job would say it."""
    return "not set" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _print_runs(rows: list[dict[str, Any]], folder: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.report.page import format_bytes, format_score

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


def _show_matrix(as_json: bool) -> None:
    """Find out what runs with what, and print it as tables or as one line of JSON."""
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.testing.compatibility import support_matrix

    with ProgressDisplay() as progress:
        found = support_matrix(lambda name: progress.begin(f"trying {name}"))
    if as_json:
        console.print_json_line({kind: {n: _plain_row(row) for n, row in rows.items()} for kind, rows in found.items()})
        return
    notes = _Notes()
    defenses, attacks, surrogates = found["defenses"], found["attacks"], found["surrogates"]
    names = list(next(iter(defenses.values())))
    half = names.index("overlap")
    _print_matrix("defenses", defenses, names[:half], notes)
    _print_matrix("", defenses, names[half:], notes)
    told = ("granted", "needs")
    _print_matrix("attacks", attacks, [name for name in next(iter(attacks.values())) if name not in told], notes)
    _print_matrix("", attacks, ["needs"], notes)
    # Each says in its own words that it is for other rows: one look at the table says as much.
    _print_matrix("surrogates of CausShield", surrogates, list(next(iter(surrogates.values()))), None)
    maps = found["features"]
    _print_matrix("feature maps of blind training", maps, list(next(iter(maps.values()))), None)
    for number, why in enumerate(notes.reasons, 1):
        console.out.print(f"{number}  {why}", markup=False, soft_wrap=True)


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
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


def _print_matrix(
    title: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str], notes: _Notes | None
) -> None:
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
