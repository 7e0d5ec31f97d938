"""Straight lines with noise that is not normal, in one place: `auto`, which looks at rows, beside `moments`.

    python experiments/discovery/lines.py --graphs 1000 1001 1002 --out results/discovery

Networks are left out: `auto` does not call them for lines.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.data.causal import load_causal
from veracausa.discovery.methods.auto import AutoDiscovery
from veracausa.metrics.graphs import graph_scores
from veracausa.runs.machine import describe_machine

ROWS: dict[str, dict[str, Any]] = {
    "exponential, 95 %": {"noise": "exponential", "explained": 0.95},
    "exponential": {"noise": "exponential"},
    "exponential, scale-free": {"noise": "exponential", "graph": "scale_free"},
    "exponential, 80 %": {"noise": "exponential", "explained": 0.8},
    "exponential, 50 %": {"noise": "exponential", "explained": 0.5},
    "exponential, 30 %": {"noise": "exponential", "explained": 0.3},
    "exponential, standardised inside": {"noise": "exponential", "internal_standardisation": True},
    "uniform": {"noise": "uniform"},
    "laplace": {"noise": "laplace"},
}


def fitted(options: dict[str, Any], graph: int) -> dict[str, Any]:
    data = load_causal("suite", generator="linear", seed=graph, **options)
    assert data.truth is not None
    fit = AutoDiscovery(networks=False).fit(data)
    place = {name: at for at, name in enumerate(data.names)}
    before = np.zeros_like(fit.adjacency_matrix_)
    for cause, effect in fit.compared_[0]["edge_list"]:
        before[place[cause], place[effect]] = True
    scores = graph_scores(data.truth, fit.adjacency_matrix_)
    return {
        "moments": graph_scores(data.truth, before)["f1"],
        "auto": scores["f1"],
        "shd": scores["shd"],
        "kept": next(one["method"] for one in fit.compared_ if one["kept"]),
        "model": fit.model_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, nargs="+", default=[1000, 1001, 1002])
    parser.add_argument("--out", type=Path, default=Path("results/discovery"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    cells = []
    for name, options in ROWS.items():
        for graph in asked.graphs:
            cells.append({"row": name, "graph": graph} | fitted(options, graph))
            print(json.dumps(cells[-1]), flush=True)
        whole = {"config": {"seed": 0, "rows": 1000}, "cells": cells, "machine": describe_machine(cuda=False)}
        (asked.out / "lines.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
