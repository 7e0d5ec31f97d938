"""A whole encrypted training and its twin: the same integers, and how long each takes.

python experiments/vfedcd/whole_training.py SEARCH_EPOCHS REFIT_EPOCHS [ATTRIBUTES PARTIES] [--run FOLDER]

With a folder, what was killed goes on from its last checkpoint when the same is called again, here or on another
machine that the folder was carried to; the seconds of all lives are added up, the work that was lost among them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.data.causal import load_causal
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.runs.machine import describe_machine


class Life:
    """Notes, an epoch at a time, how long one start of a discovery has lived; a kill cannot take that back."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.started = path, time.perf_counter()
        machine = describe_machine()
        self.machine = f"{machine['cpu']}, {machine['cores']} cores"
        self.before = list[dict[str, Any]]()
        if path is not None and path.is_file():
            lives = {record["life"]: record for record in map(json.loads, path.read_text().splitlines())}
            self.before = list(lives.values())

    def hear(self, event: Mapping[str, Any]) -> None:
        if self.path is not None and event["event"] == "epoch":
            said = {"life": len(self.before), "epoch": event["step"], "wall": self.wall, "machine": self.machine}
            with self.path.open("a") as file:
                file.write(json.dumps(said) + "\n")

    @property
    def wall(self) -> float:
        return time.perf_counter() - self.started


def main() -> None:
    arguments = sys.argv[1:]
    folder = None
    if "--run" in arguments:
        at = arguments.index("--run")
        folder = Path(arguments[at + 1])
        del arguments[at : at + 2]
    search, refit = int(arguments[0]), int(arguments[1])
    attributes, parties = (int(text) for text in arguments[2:4] or ("15", "3"))
    data = load_causal("synthetic", attributes=attributes, rows=1000, seed=200)
    values = data.values  # standardised by the training rows
    blocks = np.split(values, parties, axis=1)
    columns = {f"party_{k + 1}": block for k, block in enumerate(blocks)}
    settings = Settings(epochs=search, refit_epochs=refit, searches=[])
    fits = dict[str, DiscoveryResult]()
    for encryption in ("bfv", "none"):
        before = os.times()
        out = None if folder is None else folder / encryption
        life = Life(None if out is None else out.with_suffix(".lives.jsonl"))
        begun = out is not None and (out / "plan.json").is_file()
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
        how = {"encryption": encryption, "link": "processes", "timeout": 600.0, "out": out, "resume": begun}
        fits[encryption] = fit = run_federation(
            columns, data.names, settings, train_rows=800, seed=0, observer=life.hear, **how
        )
        after = os.times()
        said = {"encryption": encryption, "epochs": search + refit, "wall": life.wall}
        said |= {"cpu": sum(after[:4]) - sum(before[:4]), "machine": life.machine}
        print(json.dumps(said | {"lives": life.before, "load": os.getloadavg(), "sent": fit.sent}), flush=True)
    none, bfv = fits["none"], fits["bfv"]
    same = [np.array_equal(getattr(none, what), getattr(bfv, what)) for what in ("strengths", "allowed")]
    print(json.dumps({"same": same, "threshold": [none.threshold, bfv.threshold]}))


if __name__ == "__main__":
    main()
