"""`veracausa train`: one federation, all parties here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.console import print_json_line
from veracausa.cli.interruption import GoOn, resumable
from veracausa.cli.progress import ProgressDisplay
from veracausa.cli.track import Track, tracked
from veracausa.cli.watch import Watch, WatchPort, watched


def train(
    job: Annotated[Path, typer.Argument(help="The job, a TOML file; `veracausa init` writes one.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Lay one setting over the job; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: runs/NAME, numbered if taken.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint all parties hold.")] = False,
    allow_model: AllowModel = None,
    watch: Watch = False,
    watch_port: WatchPort = None,
    track: Track = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as the last line.")] = False,
) -> None:
    """Train one model across all parties of a job, here."""
    from veracausa.training.train import train as train_job

    go_on = GoOn()
    with (
        resumable(go_on),
        ProgressDisplay() as progress,
        watched(progress, watch, watch_port, "veracausa train") as observer,
        tracked(go_on.heard(observer), track) as heard,
    ):
        run = train_job(job, out, resume, settings or (), heard, allow_model=allow_model)
    from veracausa.cli.report import report

    if as_json:
        run.report()
        print_json_line({**run.summary, "run": str(run.path)})
    else:
        report([run.path])
