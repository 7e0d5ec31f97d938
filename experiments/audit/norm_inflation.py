"""Drift against strength: the norm-inflation attack at several strengths c, each a training of its own, in one table.

The job's defense must report a `drift`, as CausShield does: how far its adaptation moves a payload, relative to it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from veracausa.attacks.methods.features.norm_inflation import NormInflationOptions
from veracausa.audit.live import attacked_live, run_live
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.runs import folder

DECODER = {"epochs": 15, "channels": 32, "blocks": 1}
HEAD = ("c", "growth of ‖P‖", "drift of the attacked", "drift of the other", "accuracy", "leakage")


def measured(job: Any, strength: float, victim: str, out: Path, read: bool) -> dict[str, float]:
    """One training under this strength, and what the party's own diagnostics say after its last epoch; made once."""
    kept = out / f"c-{strength:g}" / "found.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text(encoding="utf-8")))
    options = NormInflationOptions(name="norm_inflation", strength=strength, **DECODER)
    place = out / f"c-{strength:g}" / "live" / f"norm_inflation-{victim}"
    run = run_live(job, options, victim, place, resume=(place / "config.toml").is_file(), victims=500)
    last = {
        record["party"]: record["diagnostics"]["drift"] for record in run.metrics if record.get("event") == "defense"
    }
    others = [drift for party, drift in last.items() if party != victim]
    notes = json.loads((place / "attacks" / "norm_inflation" / "notes.json").read_text(encoding="utf-8"))
    found = {"c": strength, "growth": notes["growth"], "drift": last[victim], "accuracy": run.summary["accuracy"]}
    found["drift_of_the_other"] = sum(others) / len(others) if others else float("nan")
    if read:
        parent = place.parent.parent
        shutil.copy(place / "config.toml", parent)
        outcome = attacked_live(folder.Run(parent), load(job), options, victim, 4000, 500, lambda event: None)
        found["leakage"] = outcome.leakage
    folder.write_json(kept, found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--strengths", type=float, nargs="+", default=[0, 0.01, 0.1, 1, 10])
    parser.add_argument("--victim", default="passive_1")
    parser.add_argument("--read", action="store_true", help="also train a decoder on each, for the leakage")
    asked = parser.parse_args()
    job = load_job(asked.job)
    rows = []
    for strength in asked.strengths:
        rows.append(measured(job, strength, asked.victim, asked.out, asked.read))
        print(json.dumps(rows[-1]), flush=True)
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    for row in rows:
        read = f"{100 * row['leakage']:.1f} %" if "leakage" in row else ""
        cells = [f"{row['c']:g}", f"{row['growth']:.2f}", f"{row['drift']:.3f}", f"{row['drift_of_the_other']:.3f}"]
        accuracy = f"{100 * row['accuracy']:.1f} %"
        lines.append(f"| {' | '.join([*cells, accuracy, read])} |")
    (asked.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (asked.out / "table.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    folder.write_json(asked.out / "environment.json", folder.environment(job))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
