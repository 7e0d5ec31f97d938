"""What attackers read of blind trainings: `python experiments/blind/audit.py adult digits mnist cifar10`.

Trains each job on one machine, audits it, and writes `audit-NAME.json` and `audit-NAME.md`. `--steps 0.01,0.1,1`
measures instead what the score decoder reads, and what the head is worth, at several widths of the dither:
`audit-steps-NAME.json`. Folders of trainings are kept under `--runs`, and are used again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch

import veracausa
from veracausa.audit.blind import BlindAudit, BlindAuditSettings
from veracausa.audit.blind_record import audit_blind_run
from veracausa.audit.blind_system import BlindSystem
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.metrics.blind_bounds import bits_by_spread
from veracausa.runs.folder import Run
from veracausa.runs.machine import describe_machine
from veracausa.training.evaluate import evaluate

HALVES: dict[str, Any] = {"training": {"protocol": "blind"}, "blind": {"encryption": "none", "allow_small_n": True}}
JOBS: dict[str, dict[str, Any]] = {
    "adult": {"data": {"name": "adult"}, **HALVES},
    "digits": {"data": {"name": "digits"}, "features": {"name": "patches", "size": 3, "width": 48}, **HALVES},
    "mnist": {"data": {"name": "mnist", "train": 10000}, "features": {"name": "patches", "width": 256}, **HALVES},
    "cifar10": {"data": {"name": "cifar10", "train": 10000}, "features": {"name": "patches", "width": 512}, **HALVES},
}


def trained(name: str, runs: Path, settings: list[str]) -> Run:
    """The run of this job; trained unless it is there."""
    path = runs / name
    if not (path / "summary.json").is_file():
        veracausa.train(load_job({"name": name, **JOBS[name]}, settings), path)
    return Run(path)


def steps(run: Run, widths: list[float], settings: BlindAuditSettings) -> list[dict[str, Any]]:
    """Leakage of the scores as opened, bits, and the head's own score, at each width of the dither."""
    system = BlindSystem.of_run(run, load(run.job))
    found = []
    for width in widths:
        here = system.at_step(width)
        line: dict[str, Any] = {"step": width}
        audit = BlindAudit(here, dataclasses.replace(settings, what_if=False, without=False))
        for outcome in audit.outcomes(["score_decoder"]):
            line[f"{outcome.situation.name}, {outcome.victim}"] = outcome.scores["leakage"]
        everybody = torch.arange(len(here.active.test))
        scores = here.opened("test", everybody).numpy()
        line["bits"] = bits_by_spread(scores, width)
        own = here.active.name in here.columns
        whole = scores + here.part(here.active.name, "test", everybody).numpy() if own else scores
        line |= evaluate(here.dataset.task, here.head.outputs(whole), here.labels("test", everybody))
        print(json.dumps(line), flush=True)
        found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=sorted(JOBS))
    parser.add_argument("--runs", type=Path, default=Path("runs/blind-audit"))
    parser.add_argument("--out", type=Path, default=Path("results/blind"))
    parser.add_argument("--set", action="append", default=[], help="a setting of the job")
    parser.add_argument("--attack-set", action="append", default=[], help="a setting of an attack")
    parser.add_argument("--attacks", default="")
    parser.add_argument("--parties", default="")
    parser.add_argument("--victims", type=int, default=1000)
    parser.add_argument("--auxiliary", type=int, default=10_000)
    parser.add_argument("--steps", default="")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.names:
        started = time.perf_counter()
        run = trained(name, asked.runs, asked.set)
        settings = BlindAuditSettings(
            tuple(filter(None, asked.attacks.split(","))),
            tuple(asked.attack_set),
            asked.auxiliary,
            asked.victims,
            tuple(filter(None, asked.parties.split(","))) or None,
        )
        about = {"name": name, "machine": describe_machine(cuda=False), "config": run.job.model_dump(mode="json")}
        if asked.steps:
            about["steps"] = steps(run, [float(width) for width in asked.steps.split(",")], settings)
            written = asked.out / f"audit-steps-{name}.json"
        else:
            about |= audit_blind_run(run, settings, resume=True)
            run.report()
            (asked.out / f"audit-{name}.md").write_text((run.path / "audit.md").read_text())
            written = asked.out / f"audit-{name}.json"
        about["seconds"] = time.perf_counter() - started
        written.write_text(json.dumps(about, indent=1) + "\n")
        print(written, f"{about['seconds']:.0f} s", about.get("verdict", ""), flush=True)


if __name__ == "__main__":
    main()
