"""`veracausa audit` of a discovery: train each case as the parties' programs, watch them, attack what they opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from veracausa.cli.interruption import GoOn, resumable
from veracausa.errors import InputError, wrong_value
from veracausa.registry import did_you_mean


def audit_a_discovery(
    what: Path, names: Sequence[str], given: Sequence[str], out: Path | None, resume: bool, quick: bool, as_json: bool
) -> None:
    """Audit a discovery's job or finished run; a run's audit goes into its folder `audit`."""
    from veracausa.attacks import column_attacks
    from veracausa.audit.discovery import attacks_on, audit_discovery, opened_by
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.discovery.job import read_job

    job = read_job(what / "config.toml" if what.is_dir() else what)
    names = [column_attacks.canonical(name) for name in names]
    every = names or attacks_on(opened_by(job))
    method, options, settings = sorted_settings(given, every)
    if quick:
        weaker = {name: dict(column_attacks.get(name).quick) for name in every}
        settings = {name: {**own, **settings.get(name, {})} for name, own in weaker.items() if own or name in settings}
        options = {"cases": ("as run",), **options}
    job = job.model_copy(update={"settings": {**job.settings, **method}})
    if what.is_dir() and out is not None:
        raise InputError(f"--out: {what} is a finished run, its audit goes into its own folder")
    folder = what / "audit" if what.is_dir() else out or Path("runs") / f"{job.name}-audit"
    if folder.exists() and any(folder.iterdir()) and not resume:
        raise InputError(f"{folder}: there is an audit already; go on with --resume, or choose another --out")
    with resumable(GoOn(folder, names_folder=not what.is_dir())), ProgressDisplay() as progress:
        found = audit_discovery(
            job,
            folder,
            attacks=names,
            settings=settings,
            options=_options(options),
            resume=resume,
            observer=progress,
        )
    if as_json:
        console.print_json_line({"run": str(folder), "report": str(folder / "report.html"), **found})
        return
    print_audit(found)
    console.out.print(f"Report: {folder / 'report.html'}", markup=False, soft_wrap=True)


def sorted_settings(
    given: Sequence[str], attacks: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]:
    """`K=V` of the discovery, `audit.K=V` of the audit, `ATTACK.K=V` of an attack."""
    from veracausa.written_settings import parse_setting

    method: dict[str, Any] = {}
    options: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    for text in given:
        (scope, *path), value = parse_setting(text, "NAME=VALUE")
        name = ".".join(path)
        if not path:
            method[scope] = value
        elif scope == "audit":
            options[name] = value
        elif scope in attacks:
            settings.setdefault(scope, {})[name] = value
        else:
            raise InputError(f"--set {text}: attack {scope!r} is not run{did_you_mean(scope, ['audit', *attacks])}")
    return method, options, settings


def _options(given: Mapping[str, Any]) -> Any:
    from veracausa.audit.settings import DiscoveryAuditSettings

    try:
        return DiscoveryAuditSettings.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"--set audit.{'.'.join(map(str, problem['loc']))}: {wrong_value(problem)}") from None


def print_audit(found: Mapping[str, Any]) -> None:
    """Who learns what, and the table."""
    from rich.markup import escape
    from rich.table import Table

    from veracausa.audit.discovery_record import figures, rows
    from veracausa.cli import console

    names = [case["name"] for case in found["cases"]]
    read = [[row.name, *("–" if cell is None else cell.text for cell in row.cells)] for row in rows(found)]
    read += [[label, *values] for label, values in figures(found)]
    widths = [max(map(len, column)) for column in zip(["attack", *names], *read, strict=True)]
    if sum(widths) + 2 * len(widths) > console.out.width:
        for name, *values in read:
            console.say(f"{name}: {', '.join(f'{case} {value}' for case, value in zip(names, values, strict=True))}")
    else:
        table = Table("attack", box=None, pad_edge=False)
        for name in names:
            table.add_column(escape(name), justify="right", no_wrap=True)
        for cells in read:
            table.add_row(*map(escape, cells))
        console.out.print(table)
    if any(cell is not None and cell.gain is not None for row in rows(found) for cell in row.cells):
        console.say("In brackets: what the sums add to a guess from own columns and rows of other people.")
    for who, what in found["learned"].items():
        console.say(f"\n{who[0].upper()}{who[1:]}: {what}")
