"""What differential privacy costs a discovery from sums: F1 by ε and by rows.

    python experiments/discovery/noise.py --graphs 1000 1001 --out results/discovery

Three parties hold five columns each. The twin sums up in place of encrypted rows: the integers are the same.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.data.causal import CausalData, load_causal
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.metrics.cpdag import cpdag_scores
from veracausa.metrics.graphs import graph_scores
from veracausa.runs.machine import describe_machine

EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
ROWS = (1000, 10_000, 100_000)
GENERATORS = ("gp_additive", "sines", "multiple_index", "linear")
PARTIES = 3


def fitted(data: CausalData, epsilon: float | None) -> dict[str, Any]:
    assert data.truth is not None
    blocks = np.array_split(np.arange(len(data.names)), PARTIES)
    held = {f"p{number}": [data.names[at] for at in block] for number, block in enumerate(blocks)}
    method = MomentSearch(encryption="none", epsilon=epsilon).fit(data, parties=held)
    scores = graph_scores(data.truth, method.adjacency_matrix_)
    partial = cpdag_scores(data.truth, method.adjacency_matrix_, method.undirected_)["partial_f1"]
    return {"f1": scores["f1"], "skeleton_f1": scores["skeleton_f1"], "partial_f1": partial, "model": method.model_}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, nargs="+", default=[1000, 1001])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--generators", nargs="+", choices=GENERATORS, default=list(GENERATORS))
    parser.add_argument("--out", type=Path, default=Path("results/discovery"))
    asked = parser.parse_args()
    cells = []
    for generator in asked.generators:
        for rows in asked.rows:
            for graph in asked.graphs:
                data = load_causal("suite", generator=generator, rows=rows, seed=graph)
                for epsilon in EPSILONS:
                    cell = {"generator": generator, "rows": rows, "graph": graph, "epsilon": epsilon}
                    cells.append(cell | fitted(data, epsilon))
                    print(json.dumps(cells[-1]), flush=True)
                _write(asked.out, cells, asked.rows)


def _write(out: Path, cells: list[dict[str, Any]], rows: list[int]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    config = {
        "parties": PARTIES,
        "delta": MomentSearch().settings().delta,
        "seed": 0,
        "encryption": "none, the twin of bfv",
    }
    whole = {"config": config, "cells": cells, "machine": describe_machine(cuda=False)}
    (out / "noise.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (out / "noise.md").write_text(_markdown(cells, rows), encoding="utf-8")


def _markdown(cells: list[dict[str, Any]], rows: list[int]) -> str:
    """A line for each generator and number of rows; of `linear`, where directions are open, F1 of the skeleton."""
    names = ["exact" if epsilon is None else f"ε = {epsilon:g}" for epsilon in EPSILONS]
    lines = ["| generator | rows | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for generator in GENERATORS:
        score = "skeleton_f1" if generator == "linear" else "f1"
        for count in rows:
            here = [cell for cell in cells if cell["generator"] == generator and cell["rows"] == count]
            if not here:
                continue
            means = [np.mean([cell[score] for cell in here if cell["epsilon"] == epsilon]) for epsilon in EPSILONS]
            shown = " | ".join(f"{mean:.2f}" for mean in means)
            lines.append(f"| {generator}{' (skeleton)' if generator == 'linear' else ''} | {count:,} | {shown} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
