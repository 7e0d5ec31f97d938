"""`veracausa demo`: three parties train on bundled data, split and blind, and are attacked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from veracausa.runs.folder import Run

# Each passive party holds one half of every picture; the active party holds the labels alone.
COMMON: dict[str, Any] = {
    "data": {"name": "digits", "validation": 0.1},
    "partition": {"kind": "strips", "axis": "width"},
}
SPLIT: dict[str, Any] = {
    **COMMON,
    "name": "split",
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 12, "batch_size": 64, "optimizer": {"name": "adam", "lr": 0.004}},
}
BLIND: dict[str, Any] = {
    **COMMON,
    "name": "blind",
    "training": {"protocol": "blind"},
    # Halves of 8 × 4 pixels need few patches.
    "features": {"name": "patches", "dictionary": 200},
}
PAYLOAD_ATTACKS = ("inverse",)
SCORE_ATTACKS = ("score_decoder",)


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder to write both runs into.")] = Path("runs/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print both summaries as one line of JSON.")] = False,
) -> None:
    """Train across three parties, split and blind, attack both, and write a report, in under two minutes."""
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.crypto.backends import encryption_class

    encryption_class("bfv")  # refused before anything is trained
    # Two demos in one folder are no mistake worth an error: the second one gets a folder of its own.
    folder = _free(out)

    def say(sentence: str) -> None:
        console.err.print(sentence, soft_wrap=True, markup=False)

    say("Three parties: one holds the labels, two hold one half each of 1,797 handwritten digits.")
    import torch

    import veracausa

    # Pictures this small gain nothing from a second core, and on a busy machine waiting for one takes minutes.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ProgressDisplay() as progress:
            say("Split training: a payload of every picture crosses in every epoch. An attacker reads the payloads.")
            split = veracausa.audit_job(SPLIT, PAYLOAD_ATTACKS, folder / "split", quick=True, observer=progress)
            say("Blind training: only encrypted sums over pictures cross. An attacker reads the scores it may open.")
            blind = veracausa.audit_job(BLIND, SCORE_ATTACKS, folder / "blind", quick=True, observer=progress)
    finally:
        torch.set_num_threads(threads)
    from veracausa.report.compare import write_comparison

    said = headline(split, blind)
    page = write_comparison([split.path, blind.path], folder / "report.html", said)
    if as_json:
        both = {"split": split.summary, "blind": blind.summary}
        console.print_json_line({"headline": said, **both, "run": str(folder), "report": str(page)})
        return
    _print(folder, said, page)


def headline(split: Run, blind: Run) -> str:
    """What each way of training leaked, in two sentences."""
    from veracausa.runs.record import read_run

    read, scored = read_run(split.path), read_run(blind.path)
    of_split = "an unknown share" if read.leakage is None else f"{100 * read.leakage:.0f} %"
    of_blind = "an unknown share" if scored.leakage is None else f"{100 * scored.leakage:.0f} %"
    return (
        f"Split training: {of_split} of the training pictures was read from the payloads. "
        f"Blind training: no training picture was opened, {of_blind} of the predicted ones was read from the scores."
    )


def _print(folder: Path, said: str, page: Path) -> None:
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.report.page import format_bytes, format_score, format_seconds
    from veracausa.runs.record import read_run

    console.out.print(said, markup=False, soft_wrap=True)
    table = Table("", "split", "blind", box=None, padding=(0, 2, 0, 0))
    runs = [read_run(folder / name) for name in ("split", "blind")]
    table.add_row("test accuracy", *(format_score("accuracy", run.scores.get("accuracy", 0.0)) for run in runs))
    table.add_row("training pictures opened", "all, every epoch", "none")
    table.add_row("opened of a predicted picture", "its payload", _opened(runs[1].summary))
    table.add_row("read by the attacker", *("?" if r.leakage is None else f"{100 * r.leakage:.0f} %" for r in runs))
    table.add_row("sent, all parties", *(format_bytes(run.bytes_sent) for run in runs))
    table.add_row("time to train", *(format_seconds(run.seconds or 0.0) for run in runs))
    console.out.print(table)
    console.out.print(f"\nReport, with pictures: {page}\n", markup=False, soft_wrap=True)
    console.out.print(
        "Read means: of what a blind guess misses. The attackers are small, to be quick; on data of your own, "
        "`veracausa audit` takes stronger ones.\n",
        markup=False,
        soft_wrap=True,
    )
    console.out.print(f"Next{_how_to_reach()}:", markup=False, soft_wrap=True)
    steps = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    steps.add_row("veracausa init job.toml", "a job of your own, every setting explained")
    steps.add_row("veracausa audit job.toml", "train it, and see what could be read")
    steps.add_row("veracausa list", "data sets, feature maps, models, defenses and runs")
    steps.add_row(f"veracausa report {folder / 'blind'}", "the blind run: what crossed, what was opened")
    console.out.print(steps)


def _opened(summary: Mapping[str, Any]) -> str:
    count = summary.get("blind_training", {}).get("numbers")
    return "scores" if count is None else f"{count} numbers"


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
