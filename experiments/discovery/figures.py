"""Figures of the methods `moments` and `auto` that are no table of the suite, on reporting graphs, in one place.

    python experiments/discovery/figures.py linear rows paper known --out results/discovery

`linear`: what is directed of linear Gaussian graphs. `rows`: 1,000 against 10,000 rows. `paper`: the paper's dense
graphs. `known`: Sachs and SynTReN, on which nothing was chosen; they need VERACAUSA_DATA.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.data.causal import CausalData, load_causal
from veracausa.discovery.methods import build
from veracausa.metrics.cpdag import cpdag, cpdag_scores
from veracausa.metrics.graphs import graph_scores
from veracausa.runs.machine import describe_machine

FIRST = 1000
"""Reporting graphs begin here; settings were chosen on graphs 0 to 19."""
KINDS: dict[str, dict[str, Any]] = {
    "gp_additive": {"generator": "gp_additive"},
    "gp_joint": {"generator": "gp_joint"},
    "sines": {"generator": "sines"},
    "quadratics": {"generator": "quadratics"},
    "multiple_index": {"generator": "multiple_index"},
    "mlp": {"generator": "mlp"},
    "linear_exponential": {"generator": "linear", "noise": "exponential"},
    "linear": {"generator": "linear"},
}


def fitted(data: CausalData, method: str = "moments", **settings: Any) -> dict[str, Any]:
    """One fit's row: scores, what is open, seconds of this processor."""
    started = time.process_time()
    fit = build(method, **settings).fit(data)
    found, lines = fit.adjacency_matrix_, fit.undirected_
    assert data.truth is not None
    row = graph_scores(data.truth, found) | cpdag_scores(data.truth, found, lines)
    kept = ("shd", "f1", "partial_f1", "skeleton_f1", "edges", "undirected", "uncompelled")
    compelled, _ = cpdag(found)
    directed = found & ~lines
    return {
        "method": method,
        "model": getattr(fit, "model_", None),
        **{name: row[name] for name in kept},
        "directed_beyond_its_class": int((directed & ~compelled).sum()),
        "directed_wrong": int((directed & ~data.truth).sum()),
        "directed": int(directed.sum()),
        "seconds": round(time.process_time() - started, 2),
    }


def linear(graphs: int) -> Iterator[dict[str, Any]]:
    for graph in range(FIRST, FIRST + graphs):
        for kind in ({}, {"internal_standardisation": True}):
            data = load_causal("suite", generator="linear", seed=graph, **kind)
            yield {"graph": graph, **kind, **fitted(data)}


def rows(graphs: int) -> Iterator[dict[str, Any]]:
    for name, settings in KINDS.items():
        for graph in range(FIRST, FIRST + graphs):
            for count in (1000, 10_000):
                data = load_causal("suite", seed=graph, rows=count, **settings)
                yield {"generator": name, "graph": graph, "rows": count, **fitted(data)}


def paper(graphs: int) -> Iterator[dict[str, Any]]:
    for attributes, edges in ((10, 40), (15, 60), (25, 100)):
        for graph in range(FIRST, FIRST + graphs):
            data = load_causal("synthetic", attributes=attributes, edges=edges, seed=graph)
            yield {"attributes": attributes, "graph": graph, **fitted(data, "auto", starts=2)}


def known(graphs: int) -> Iterator[dict[str, Any]]:
    for name in ("sachs", "syntren"):
        for method in ("moments", "auto"):
            yield {"data": name, **fitted(load_causal(name), method)}


PARTS = {"linear": linear, "rows": rows, "paper": paper, "known": known}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--graphs", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for part in given.parts:
        found = []
        for row in PARTS[part](given.graphs):
            found.append(row)
            print(part, {name: round(v, 3) if isinstance(v, float) else v for name, v in row.items()}, flush=True)
            whole = {"machine": describe_machine(cuda=False), "graphs": given.graphs, "rows": found}
            (given.out / f"{part}.json").write_text(json.dumps(whole, indent=1) + "\n")
        f1 = [row["f1"] for row in found]
        print(f"{part}: {len(found)} fits, mean F1 {np.mean(f1):.3f}")


if __name__ == "__main__":
    main()
