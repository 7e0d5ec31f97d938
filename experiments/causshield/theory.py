"""What CausShield's Theorems 1 to 4 claim, beside trained parties: Jacobians of both parts, InvLoss and τ_th, Ψ.

    python experiments/causshield/theory.py results/causshield/theory [--data mnist] [--cut 3] [--profiles literal]

Each profile trains both passive parties. The Jacobians are those of test rows, at the first exchange, at a tenth, at
half and at the end of the training. It writes DATA-CUT.json and, of all such files that lie there, README.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import veracausa
from veracausa.audit.victim import Victim
from veracausa.data.load import load
from veracausa.defenses.causshield.defense import CausShield
from veracausa.metrics.causal_parts import causal_parts
from veracausa.runs.folder import Run
from veracausa.runs.machine import describe_machine
from veracausa.runs.store import Store
from veracausa.training.split.program import Schema

ROWS, BATCH, NOISE = 8, 64, 0.15
JOBS: dict[str, dict[str, Any]] = {
    "digits": {
        "data": {"name": "digits"},
        "training": {"epochs": 10, "batch_size": BATCH, "optimizer": {"name": "adam", "lr": 2e-3}},
    },
    "mnist": {
        "data": {"name": "mnist", "train": 6000, "test": 1000},
        "training": {"epochs": 5, "batch_size": BATCH, "optimizer": {"name": "adam", "lr": 1e-3}},
    },
}
ITERATIONS = {"literal": 20, "paper_repaired": 20, "recommended": 10}
MEANS = ("k", "ratio", "dominated", "overlap", "chance", "gamma", "bound", "loss_sent", "loss_whole", "threshold")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", choices=JOBS, default="digits")
    parser.add_argument("--cut", type=int, default=6)
    parser.add_argument("--profiles", nargs="+", choices=ITERATIONS, default=list(ITERATIONS))
    args = parser.parse_args()
    job = {
        "name": "theory",
        **JOBS[args.data],
        "model": {"name": "convnet", "cut": args.cut},
        "runtime": {"device": "cpu", "cpu_threads": 1},
        "risk": {"every": 0},
        "checkpoints": {"moments": [0.0, 0.1, 0.5]},
    }
    found = {}
    for profile in args.profiles:
        defense = {"name": "causshield", "profile": profile, "iterations": ITERATIONS[profile]}
        with tempfile.TemporaryDirectory() as folder:
            run = veracausa.train({**job, "defense": defense}, Path(folder) / "run")
            found[profile] = {"accuracy": run.summary["accuracy"], **measured(run)}
        print(profile, json.dumps(found[profile]["moments"][-1]), flush=True)
    told = {"job": job, "iterations": ITERATIONS, "rows": ROWS, "noise": NOISE, "profiles": found}
    args.out.mkdir(parents=True, exist_ok=True)
    place = args.out / f"{args.data}-cut{args.cut}.json"
    place.write_text(json.dumps({**told, "machine": describe_machine(cuda=False)}, indent=1) + "\n", encoding="utf-8")
    (args.out / "README.md").write_text(page(args.out), encoding="utf-8")


def measured(run: Run) -> dict[str, Any]:
    """The numbers of each snapshot, means of both parties, and Ψ after each epoch."""
    dataset = load(run.job)
    steps = int(run.summary["rounds"])
    moments = []
    for step in [*Store(run.path, "passive_1").moment_steps(), None]:
        means = [of_party(run, name, dataset, step) for name in run.job.parties.passive]
        moments.append({"share": 1.0 if step is None else step / steps, **mean(means)})
    psi: dict[int, list[float]] = {}
    for record in run.metrics:
        if (value := (record.get("diagnostics") or {}).get("causal_error")) is not None:
            psi.setdefault(record["epoch"], []).append(value)
    return {"moments": moments, "psi": [fmean(psi[epoch]) for epoch in sorted(psi)]}


def of_party(run: Run, name: str, dataset: Any, step: int | None) -> dict[str, float]:
    victim = Victim(run, dataset.parties[name], Schema.of(dataset), step)
    defense = victim.party.defense
    assert isinstance(defense, CausShield)
    x = victim.rows("test", torch.arange(BATCH))
    sent, bottom = defense.parts(x, torch.arange(BATCH))
    rows = x[:ROWS]
    ids = torch.arange(ROWS)
    center = victim.rows("train", torch.arange(1000)).mean(0)
    found = causal_parts(lambda r: sent(r, ids), lambda r: bottom(r, ids), rows, center, NOISE)
    return found.means()


def mean(parties: list[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(party[name] for party in parties) for name in parties[0]}


def page(folder: Path) -> str:
    lines = [
        "# What the theorems claim, beside trained parties",
        "",
        "`python experiments/causshield/theory.py results/causshield/theory --data …` writes this page.",
        "Eight test rows, means of both passive parties, one seed. r^s is what is sent, r what the bottom gives, "
        "r^u = r − r^s.",
        "",
        "- **σ ratio**: the median of σ_i(G^U)/σ_i(G^S). Theorem 1 rests on it being far above 1.",
        "- **overlap**: how far the row spaces of both parts agree. Definition 1 says 0; one space has 1. *Chance* is",
        "  what two random spaces of that size have.",
        "- **1 − kγ²**: the factor of Eq. 7's lower bound. At 0 and below the bound says nothing.",
        "- **InvLoss** of r^s and of r: what a reader of the payload must miss, as a share of ‖x − μ‖². 0: it misses",
        "  nothing.",
        f"- **τ_th** of Eq. 39 with noise n = {NOISE}: the paper says that InvLoss(r^s) is above it.",
        "- **Ψ** after the first and the last epoch: Theorems 3 and 4 bound the error of the gradient by it.",
    ]
    for place in sorted(folder.glob("*.json")):
        told = json.loads(place.read_text(encoding="utf-8"))
        job = told["job"]
        lines += ["", f"## {job['data']['name']}, cut at {job['model']['cut']}", ""]
        lines += [
            "| profile | accuracy | training | σ ratio | overlap (chance) | 1 − kγ² "
            "| InvLoss r^s | InvLoss r | τ_th | above |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for profile, found in told["profiles"].items():
            for at in found["moments"]:
                lines.append(
                    f"| {profile} | {100 * found['accuracy']:.1f} % | {100 * at['share']:.0f} % | {at['ratio']:.2g} "
                    f"| {at['overlap']:.2f} ({at['chance']:.2f}) | {at['bound']:.3g} | {at['loss_sent']:.3f} "
                    f"| {at['loss_whole']:.3f} | {at['threshold']:.3g} | {100 * at['above_threshold']:.0f} % |"
                )
        lines += ["", "| profile | Ψ, first epoch | Ψ, last epoch |", "|---|---|---|"]
        for profile, found in told["profiles"].items():
            first, last = (f"{found['psi'][at]:.3g}" for at in (0, -1)) if found["psi"] else ("–", "–")
            lines.append(f"| {profile} | {first} | {last} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
