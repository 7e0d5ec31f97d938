"""The figure of times: what each defense adds to one exchange, as `veracausa bench causshield` measures it here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.experiments.experiment import Bench, Experiment
from veracausa.experiments.figures import bars_of_times, milliseconds
from veracausa.experiments.page import markdown, write_pages, write_settings
from veracausa.experiments.schedule import Progress, late
from veracausa.experiments.table import as_csv, as_parquet
from veracausa.runs.atomic import atomic_write
from veracausa.runs.folder import write_json

if TYPE_CHECKING:
    from veracausa.experiments.defense_times import TimeRow

DEFENSE = "defense "
HEAD = ["", "ms", "beside", "its ms", "extra ms", "ratio"]


def reproduce_times(experiment: Experiment, cells: Path, out: Path, until: float | None = None) -> Progress:
    """Measure, unless this machine was measured with these settings already, and write table, figure and page."""
    from veracausa.runs.machine import describe_machine

    bench = experiment.bench
    assert bench is not None
    machine = describe_machine()
    kept = cells / "results" / f"{_key(bench, machine)}.json"
    if not kept.is_file():
        if late(until):
            return Progress(1, 0, stopped=True)
        rows = [row.as_dict() for row in _measured(bench)]
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, {"bench": bench.model_dump(mode="json"), "machine": machine, "rows": rows})
    _write(experiment, json.loads(kept.read_text(encoding="utf-8"))["rows"], machine, out)
    return Progress(1, 1)


def _measured(bench: Bench) -> list[TimeRow]:
    from veracausa.experiments.defense_times import time_defenses, time_defenses_quickly

    if bench.quick:
        return time_defenses_quickly(bench.names or None, bench.width)
    return time_defenses(bench.names or None, bench.precision, bench.compiled, bench.width)


def _write(experiment: Experiment, rows: Sequence[dict[str, Any]], machine: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    beside = [row for row in rows if row["case"].startswith((DEFENSE, "once: "))]
    atomic_write(out / "table.csv", as_csv(time_rows(beside)).encode())
    atomic_write(out / "table.parquet", as_parquet(time_rows(beside)))
    where = machine["device"] if machine["device"] != "cpu" else machine["cpu"]
    shown = {
        "label": f"One passive party, on {where}",
        "substitute": "",
        "head": HEAD,
        "body": [_texts(row) for row in beside],
        "guesses": 0,
    }
    progress = Progress(1, 1)
    atomic_write(out / "table.md", markdown(experiment, [shown], experiment.footnotes, progress).encode())
    write_settings(experiment, (), out)
    atomic_write(out / "environment.json", (json.dumps([machine], indent=2) + "\n").encode())
    exchanges = [row for row in beside if row["case"].startswith(DEFENSE)]
    drawn = {_label(row): row["seconds"] - row["against_seconds"] for row in exchanges}
    ordered = dict(sorted(drawn.items(), key=lambda item: item[1]))
    drawings = [bars_of_times("What a defense adds to one exchange", ordered)] if ordered else []
    write_pages(experiment, [shown], drawings, experiment.footnotes, [machine], progress, out)


def time_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with what a defense adds, for machines."""
    names = ("case", "seconds", "against", "against_seconds", "ratio")
    return [
        {**{name: row[name] for name in names}, "extra_seconds": row["seconds"] - row["against_seconds"]}
        for row in rows
    ]


def _label(row: dict[str, Any]) -> str:
    """The defense and how it was run; what is rebuilt from formulas is called so, as in every table."""
    name = str(row["case"]).removeprefix(DEFENSE)
    return f"{name}, reconstructed" if name.startswith("invl_") else name


def _texts(row: dict[str, Any]) -> list[str]:
    seconds, plain = row["seconds"], row["against_seconds"]
    numbers = [milliseconds(value) for value in (seconds, plain, seconds - plain)]
    return [
        _label(row),
        numbers[0],
        row["against"],
        numbers[1],
        numbers[2],
        f"{row['ratio']:.2f}",
    ]


def _key(bench: Bench, machine: dict[str, Any]) -> str:
    settings = {"bench": bench.model_dump(mode="json"), "machine": machine}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:20]
