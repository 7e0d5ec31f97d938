"""How well two ways to resample agree: rows by Poisson weights, and the sums drawn anew from a Wishart distribution.

    python experiments/discovery/resampling.py --graphs 1000 1001 --resamples 40 --out results/discovery

Every table is fitted in one place, once in each way. For all pairs of columns the shares of resamples with an edge are
compared, and for all ordered pairs those with a directed edge.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.data.causal import load_causal
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.runs.machine import describe_machine

GENERATORS = (("linear", "gaussian"), ("linear", "exponential"), ("gp_additive", "gaussian"), ("mlp", "gaussian"))


def compared(generator: str, noise: str, graph: int, resamples: int, rows: int) -> dict[str, Any]:
    """One table under both ways."""
    data = load_causal("suite", generator=generator, noise=noise, rows=rows, seed=graph)
    fits = {
        how: MomentSearch(bootstrap=resamples, resampling=how, starts=2).fit(data)  # type: ignore[arg-type]
        for how in ("rows", "sums")
    }
    d = len(data.names)
    pairs, both = np.triu_indices(d, 1), ~np.eye(d, dtype=bool)
    skeleton = {how: fit.skeleton_confidence_[pairs] for how, fit in fits.items()}
    directed = {how: fit.confidence_[both] for how, fit in fits.items()}
    assert data.truth is not None
    edges = (data.truth | data.truth.T)[pairs]
    found: dict[str, Any] = {"generator": generator, "noise": noise, "graph": graph, "rows": rows}
    found["model"] = fits["rows"].model_
    for name, told in (("skeleton", skeleton), ("directed", directed)):
        found[f"{name} difference"] = float(np.abs(told["rows"] - told["sums"]).mean())
        found[f"{name} correlation"] = float(np.corrcoef(told["rows"], told["sums"])[0, 1])
        found[f"{name} within .2"] = float((np.abs(told["rows"] - told["sums"]) <= 0.2).mean())
    for how in fits:
        found[f"true edges, {how}"] = float(skeleton[how][edges].mean())
        found[f"no edges, {how}"] = float(skeleton[how][~edges].mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, nargs="+", default=[1000, 1001])
    parser.add_argument("--resamples", type=int, default=40)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/discovery"))
    asked = parser.parse_args()
    cells = []
    for generator, noise in GENERATORS:
        for graph in asked.graphs:
            cells.append(compared(generator, noise, graph, asked.resamples, asked.rows))
            print(json.dumps(cells[-1]), flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    whole = {"resamples": asked.resamples, "cells": cells, "machine": describe_machine(cuda=False)}
    (asked.out / "resampling.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (asked.out / "resampling.md").write_text(_markdown(cells), encoding="utf-8")


def _markdown(cells: list[dict[str, Any]]) -> str:
    head = [name for name in cells[0] if name not in ("rows",)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for cell in cells:
        shown = [f"{cell[name]:.3f}" if isinstance(cell[name], float) else str(cell[name]) for name in head]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
