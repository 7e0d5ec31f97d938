"""What Soteria's mask costs the task: one a batch, as its authors have it, or one a row.

python experiments/causshield/soteria_masks.py results/causshield/soteria-masks/accuracy.json
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

import veracausa
from veracausa.runs.machine import describe_machine

JOB = {
    "name": "soteria-masks",
    "data": {"name": "digits"},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 15, "batch_size": 64, "optimizer": {"name": "adam", "lr": 0.002}},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "risk": {"every": 0},
}
SOTERIA = {"name": "soteria", "fraction": 0.8}
DEFENSES = {
    "undefended": {"name": "none"},
    "a mask a row": {**SOTERIA, "mask_scope": "sample", "offset": 0.0},
    "a mask a row, offset 0.1": {**SOTERIA, "mask_scope": "sample", "offset": 0.1},
    "a mask a batch, offset 0.1 (the authors')": {**SOTERIA, "mask_scope": "batch", "offset": 0.1},
}
SEEDS = (0, 1, 2)


def main(out: Path) -> None:
    found = {}
    for name, defense in DEFENSES.items():
        reached = []
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                run = veracausa.train({**JOB, "seed": seed, "defense": defense}, Path(folder) / "run")
                reached.append(run.summary["accuracy"])
        found[name] = reached
        print(f"{name}: {100 * statistics.fmean(reached):.1f} ± {100 * statistics.stdev(reached):.1f} %")
    told = {
        "job": JOB,
        "defenses": DEFENSES,
        "seeds": SEEDS,
        "accuracy": found,
        "machine": describe_machine(cuda=False),
    }
    out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
