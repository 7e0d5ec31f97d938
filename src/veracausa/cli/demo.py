"""`veracausa demo`: three parties train on bundled data, in well under two minutes on two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

JOB: dict[str, Any] = {
    "name": "demo",
    "data": {"name": "digits", "validation": 0.1},
    # Each passive party holds one half of every picture; the active party holds the labels alone.
    "partition": {"kind": "strips", "axis": "width"},
    "model": {"name": "convnet", "cut": 6},
    "training": {
        "epochs": 15,
        "batch_size": 64,
        "optimizer": {"name": "adam", "lr": 0.002},
        "baselines": ["joint", "unsplit"],
    },
}


def demo(
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")] = Path("runs/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one line of JSON.")] = False,
) -> None:
    """Train across three parties on bundled data and write a report, in under two minutes."""
    from veracausa.cli import console

    # Two demos in one folder are no mistake worth an error: the second one gets a folder of its own.
    folder = _free(out)
    console.err.print(
        "Three parties: one holds the labels, two hold one half each of 1,797 handwritten digits.", soft_wrap=True
    )
    import torch

    import veracausa

    # Pictures this small gain nothing from a second core, and on a busy machine waiting for one takes minutes.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with console.Progress() as progress:
            run = veracausa.train(JOB, out=folder, observer=progress)
    finally:
        torch.set_num_threads(threads)
    from veracausa.runs.record import read_run
    from veracausa.runs.report import headline, key_numbers, write_report

    page = write_report(run.path)
    record = read_run(run.path)
    if as_json:
        console.print_json_line({**record.summary, "run": str(run.path), "report": str(page)})
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in key_numbers(record):
        table.add_row(name, value)
    for name, scores in record.summary.get("baselines", {}).items():
        if "accuracy" in scores:
            table.add_row(f"{name.replace('_', ' ')} (baseline)", f"{100 * scores['accuracy']:.1f} %")
    console.out.print(headline(record), markup=False, soft_wrap=True)
    console.out.print(table)
    console.out.print(f"\nReport: {page}\n", markup=False, soft_wrap=True)
    console.out.print(
        "No defense was on: whoever receives a representation can try to turn it back into a picture.\n", soft_wrap=True
    )
    console.out.print(f"Next{_how_to_reach()}:", markup=False, soft_wrap=True)
    steps = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    steps.add_row("veracausa init job.toml", "a job of your own, every setting explained")
    steps.add_row("veracausa train job.toml", "train it")
    steps.add_row("veracausa list", "data sets, models, defenses and runs")
    steps.add_row(f"veracausa report {run.path} RUN", "compare two runs")
    console.out.print(steps)


def _how_to_reach() -> str:
    """What to type first where the command is not on the path, as after `make demo`."""
    import shutil
    import sys

    activate = Path(sys.executable).with_name("activate")
    if shutil.which("veracausa") or not activate.exists():
        return ""
    here = Path.cwd()
    return f" (first `. {activate.relative_to(here) if activate.is_relative_to(here) else activate}`)"


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that is not there yet."""
    number, candidate = 1, folder
    while candidate.exists() and (not candidate.is_dir() or any(candidate.iterdir())):
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
