"""`veracausa demo`: three parties train on bundled pictures, split and blind, and are attacked; and a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from veracausa.errors import InputError

# Each passive party holds one half of every picture; the active party holds the labels alone.
COMMON: dict[str, Any] = {
    "data": {"name": "clothing"},
    "partition": {"kind": "strips", "axis": "width"},
}
SPLIT: dict[str, Any] = {
    **COMMON,
    "name": "split",
    "model": {"name": "convnet", "cut": 3},
    "training": {"epochs": 20, "batch_size": 32, "optimizer": {"name": "adam", "lr": 0.003}},
}
BLIND: dict[str, Any] = {
    **COMMON,
    "name": "blind",
    "training": {"protocol": "blind"},
    "features": {"name": "patches", "dictionary": 200},
}
GRAPH: dict[str, Any] = {
    "name": "graph",
    "data": {"name": "patients"},
    "parties": {"hospital": ["age", "bmi", "dose"], "lab": ["crp", "hba1c", "ldl"]},
}
PAYLOAD_ATTACKS = ("inverse",)
SUM_ATTACKS = ("sum_regression", "score_decoder")


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder to write the runs into.")] = Path("runs/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print all summaries as one line of JSON.")] = False,
) -> None:
    """Train on pictures of clothes, split and blind, attack both, and learn a causal graph, in under two minutes."""
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.crypto.backends import encryption_class

    encryption_class("bfv")  # refused before anything is trained
    # Two demos in one folder are no mistake worth an error: the second one gets a folder of its own.
    if out.is_file():
        raise InputError(f"{out}: is a file; name a folder with --out")
    folder = _free(out)

    def say(sentence: str) -> None:
        console.say(sentence, console.news)

    say("Three parties: one holds the labels, two hold one half each of 2,500 pictures of clothes.")
    import torch

    import veracausa
    from veracausa.discovery.discover import run_job
    from veracausa.discovery.job import DiscoveryJob

    # Pictures this small gain nothing from a second core, and on a busy machine waiting for one takes minutes.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ProgressDisplay() as progress:
            say("1 of 3, blind training: only encrypted sums over pictures cross. A partner attacks sums and scores.")
            blind = veracausa.audit_job(BLIND, SUM_ATTACKS, folder / "blind", quick=True, observer=progress)
            say("2 of 3, split training: a payload of every picture crosses in every epoch. A partner attacks those.")
            split = veracausa.audit_job(SPLIT, PAYLOAD_ATTACKS, folder / "split", quick=True, observer=progress)
            say("3 of 3, a causal graph over made-up patients, whose columns a hospital and a lab hold.")
            graph = run_job(DiscoveryJob.model_validate(GRAPH), folder / "graph", False, progress)
    finally:
        torch.set_num_threads(threads)
    from veracausa.report.demo_page import demo_read, demo_rows, demo_verdict, graph_sentence, write_demo_page

    page = write_demo_page(split.path, blind.path, graph.path, folder / "report.html")
    said = demo_verdict(demo_read(split.path, blind.path))
    if as_json:
        told = {"split": split.summary, "blind": blind.summary, "graph": graph.summary}
        console.print_json_line({"verdict": said, **told, "run": str(folder), "report": str(page)})
        return
    console.say(said)
    table = Table("", "split", "blind", box=None, padding=(0, 2, 0, 0))
    for row in demo_rows(split.path, blind.path):
        table.add_row(*row)
    console.out.print(table)
    console.say(f"\nCausal graph of hospital and lab: {graph_sentence(graph.path)}")
    console.out.print(f"Report, with pictures: {page}\n", markup=False, soft_wrap=True)
    console.say(
        "Read means: of what a guess misses. The attackers are small, to be quick; on data of your own, "
        "`veracausa audit` takes stronger ones.\n"
    )
    console.out.print(f"Next{_how_to_reach()}:", markup=False, soft_wrap=True)
    steps = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    steps.add_row("veracausa init job.toml", "a job of your own, every setting explained")
    steps.add_row("veracausa train job.toml", "train it")
    steps.add_row("veracausa audit runs/digits", "see what your partners could read")
    steps.add_row(f"veracausa report {folder / 'blind'}", "the blind run: what crossed, what was opened")
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
