"""The figure of times: what each defense adds to one exchange, as `veracausa bench causshield` measures it here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veracausa.errors import InputError
from veracausa.reproduce.experiment import Bench, Experiment
from veracausa.reproduce.figures import bars_of_times
from veracausa.reproduce.page import markdown, write_pages, write_settings
from veracausa.reproduce.schedule import Progress, late
from veracausa.reproduce.table import as_csv, as_parquet
from veracausa.runs.atomic import write_whole
from veracausa.runs.folder import write_json

EXCHANGE = "exchange, "
HEAD = ["", "ms", "beside", "its ms", "extra ms", "ratio"]


def reproduce_times(
    experiment: Experiment, cells: Path, out: Path, overrides: Sequence[str] = (), until: float | None = None
) -> Progress:
    """Measure, unless this machine was measured with these settings already, and write table, figure and page."""
    from veracausa.runs.machine import describe_machine

    bench = experiment.bench
    assert bench is not None
    if overrides:
        raise InputError(f"{experiment.name} has no job that --set could change; its settings are in its [bench] table")
    machine = describe_machine()
    kept = cells / "results" / f"{_key(bench, machine)}.json"
    if not kept.is_file():
        if late(until):
            return Progress(1, 0, stopped=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, {"bench": bench.model_dump(mode="json"), "machine": machine, "rows": _measured(bench)})
    rows = json.loads(kept.read_text(encoding="utf-8"))["rows"]
    _write(experiment, rows, machine, out)
    return Progress(1, 1)


def _measured(bench: Bench) -> list[dict[str, Any]]:
    from veracausa.bench.causshield import run

    found = run(bench.repeats, "auto", bench.precision, bench.compiled, bench.width)
    return [row.as_dict() for row in found]


def _write(experiment: Experiment, rows: Sequence[dict[str, Any]], machine: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    # What is beside a plain exchange or a plain step says what a defense adds; the rest is about how it is made fast.
    beside = [row for row in rows if row["against"].startswith("plain")]
    extra = {row["case"]: row["seconds"] - row["against_seconds"] for row in beside}
    write_whole(out / "table.csv", as_csv(rows_of(beside)).encode())
    write_whole(out / "table.parquet", as_parquet(rows_of(beside)))
    shown = {
        "label": f"One exchange, on {machine['device'] if machine['device'] != 'cpu' else machine['cpu']}",
        "substitute": "",
        "head": HEAD,
        "body": [_texts(row) for row in beside],
        "guesses": 0,
    }
    notes = [
        "Extra: what comes on top of a plain exchange of all parties, or, for a phase, of a plain step of one.",
        *experiment.footnotes,
    ]
    progress = Progress(1, 1)
    write_whole(out / "table.md", markdown(experiment, [shown], notes, progress).encode())
    write_settings(experiment, (), out)
    write_whole(out / "environment.json", (json.dumps([machine], indent=2) + "\n").encode())
    whole = {case.removeprefix(EXCHANGE): seconds for case, seconds in extra.items() if case.startswith(EXCHANGE)}
    drawn = {case: seconds for case, seconds in sorted(whole.items(), key=lambda item: item[1]) if seconds > 0}
    drawings = [bars_of_times("What a defense adds to one exchange", drawn)] if drawn else []
    write_pages(experiment, [shown], drawings, notes, [machine], progress, out)


def rows_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with what a defense adds, for machines."""
    names = ("case", "seconds", "against", "against_seconds", "ratio")
    return [
        {**{name: row[name] for name in names}, "extra_seconds": row["seconds"] - row["against_seconds"]}
        for row in rows
    ]


def _texts(row: dict[str, Any]) -> list[str]:
    seconds, plain = row["seconds"], row["against_seconds"]
    numbers = [f"{1e3 * value:.3g}" for value in (seconds, plain, seconds - plain)]
    return [row["case"], numbers[0], row["against"], numbers[1], numbers[2], f"{row['ratio']:.2f}"]


def _key(bench: Bench, machine: dict[str, Any]) -> str:
    settings = {"bench": bench.model_dump(mode="json"), "machine": machine}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:20]
