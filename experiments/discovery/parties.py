"""What a discovery from sums loses between parties, where no row may be told, beside the same table in one place.

    python experiments/discovery/parties.py --graphs 1000 1001 --out results/discovery

Three parties hold five columns each. Sums are opened to a validator, or to all parties. The twin sums up in place of
encrypted rows: the integers are the same.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.data.causal import CausalData, load_causal
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.metrics.graphs import graph_scores
from veracausa.runs.machine import describe_machine

GENERATORS = (
    ("linear", "gaussian"),
    ("linear", "exponential"),
    ("gp_additive", "gaussian"),
    ("gp_joint", "gaussian"),
    ("sines", "gaussian"),
    ("multiple_index", "gaussian"),
    ("mlp", "gaussian"),
    ("quadratics", "gaussian"),
)
WAYS = ("one place", "validator", "all")
PARTIES = 3


def fitted(data: CausalData, way: str) -> dict[str, Any]:
    assert data.truth is not None
    held = None
    settings: dict[str, Any] = {"encryption": "none"}
    if way != "one place":
        blocks = np.array_split(np.arange(len(data.names)), PARTIES)
        held = {f"p{number}": [data.names[at] for at in block] for number, block in enumerate(blocks)}
        settings["receiver"] = way
    method = MomentSearch(**settings).fit(data, parties=held)
    scores = graph_scores(data.truth, method.adjacency_matrix_)
    return {"f1": scores["f1"], "skeleton_f1": scores["skeleton_f1"], "model": method.model_}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, nargs="+", default=[1000, 1001])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000])
    parser.add_argument("--out", type=Path, default=Path("results/discovery"))
    asked = parser.parse_args()
    cells = []
    for generator, noise in GENERATORS:
        for rows in asked.rows:
            for graph in asked.graphs:
                data = load_causal("suite", generator=generator, noise=noise, rows=rows, seed=graph)
                for way in WAYS:
                    cell = {"generator": generator, "noise": noise, "rows": rows, "graph": graph, "way": way}
                    cells.append(cell | fitted(data, way))
                    print(json.dumps(cells[-1]), flush=True)
                _write(asked.out, cells, asked.rows)


def _write(out: Path, cells: list[dict[str, Any]], rows: list[int]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    config = {"parties": PARTIES, "seed": 0, "encryption": "none, the twin of bfv"}
    whole = {"config": config, "cells": cells, "machine": describe_machine(cuda=False)}
    (out / "parties.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (out / "parties.md").write_text(_markdown(cells, rows), encoding="utf-8")


def _markdown(cells: list[dict[str, Any]], rows: list[int]) -> str:
    """F1; of `linear` with normal noise, where directions are open, that of the skeleton."""
    lines = ["| generator | rows | " + " | ".join(WAYS) + " |", "|---|---|" + "---|" * len(WAYS)]
    for generator, noise in GENERATORS:
        is_open = (generator, noise) == ("linear", "gaussian")
        for count in rows:
            here = [c for c in cells if (c["generator"], c["noise"], c["rows"]) == (generator, noise, count)]
            if not here:
                continue
            score = "skeleton_f1" if is_open else "f1"
            means = [np.mean([cell[score] for cell in here if cell["way"] == way]) for way in WAYS]
            name = f"{generator}{'' if noise == 'gaussian' else ', ' + noise}{' (skeleton)' if is_open else ''}"
            lines.append(f"| {name} | {count:,} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
