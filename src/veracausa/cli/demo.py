"""`veracausa demo`: three parties train on bundled data, with and without a defense, and are attacked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

JOB: dict[str, Any] = {
    "name": "demo",
    "data": {"name": "digits", "validation": 0.1},
    # Each passive party holds one half of every picture; the active party holds the labels alone.
    "partition": {"kind": "strips", "axis": "width"},
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 8, "batch_size": 64, "optimizer": {"name": "adam", "lr": 0.002}},
    # Few iterations: enough to see what it does, in a minute.
    "defense": {"name": "causshield", "iterations": 3},
}
ATTACKS = ("inverse", "unsplit")


def demo(
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")] = Path("runs/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one line of JSON.")] = False,
) -> None:
    """Train across three parties, with and without a defense, attack both, and write a report, in under two minutes."""
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay

    # Two demos in one folder are no mistake worth an error: the second one gets a folder of its own.
    folder = _free(out)

    def say(sentence: str) -> None:
        console.err.print(sentence, soft_wrap=True, markup=False)

    say("Three parties: one holds the labels, two hold one half each of 1,797 handwritten digits.")
    say("They train with CausShield and without any defense; then two attackers try to get the pictures back.")
    import torch

    import veracausa

    # Pictures this small gain nothing from a second core, and on a busy machine waiting for one takes minutes.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ProgressDisplay() as progress:
            run = veracausa.audit_job(JOB, ATTACKS, folder, quick=True, observer=progress)
    finally:
        torch.set_num_threads(threads)
    page = run.path / "report.html"
    if as_json:
        console.print_json_line({**run.summary, "run": str(run.path), "report": str(page)})
        return
    _print(run.path, page)


def _print(run: Path, page: Path) -> None:
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.cli.audit import print_audit
    from veracausa.report.run_page import headline
    from veracausa.runs.folder import Run
    from veracausa.runs.record import read_run

    console.out.print(headline(read_run(run)), markup=False, soft_wrap=True)
    if (found := Run(run).summary).get("attacks"):
        print_audit(Run(run), found)
    console.out.print(f"\nReport, with pictures: {page}\n", markup=False, soft_wrap=True)
    console.out.print(
        "The attackers are small, to be quick; on data of your own, `veracausa audit` takes stronger ones.\n",
        soft_wrap=True,
    )
    console.out.print(f"Next{_how_to_reach()}:", markup=False, soft_wrap=True)
    steps = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    steps.add_row("veracausa init job.toml", "a job of your own, every setting explained")
    steps.add_row("veracausa audit job.toml", "train it, and see what could be read")
    steps.add_row("veracausa list", "data sets, models, defenses and runs")
    steps.add_row(f"veracausa report {run} RUN", "compare two runs")
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
