"""How near the integer twin comes to the model in floating point: the same graphs, the same settings, mean SHD of each.

    python experiments/vfedcd/agreement.py --size 10/40 --graphs 200-204 --out results/vfedcd/twin

Single fits compare nothing: with another seed the float model itself differs from itself by several edges.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.atomic import atomic_write
from veracausa.data.causal.synthetic import SyntheticOptions, synthetic
from veracausa.discovery.engines.centralized import CentralizedVFedCD, Searches
from veracausa.discovery.engines.shares.plaintext_twin import discover_plaintext
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.metrics.graphs import graph_scores
from veracausa.runs.machine import describe_machine

PARTIES = 3
TRAIN_SHARE = 0.8


def compare(attributes: int, edges: int, graph: int, seed: int, settings: Settings) -> dict[str, Any]:
    """SHD and F1 of both on one graph, with one seed of the algorithm; CPU seconds of each."""
    data = synthetic(SyntheticOptions(name="synthetic", attributes=attributes, edges=edges, seed=graph))
    assert data.truth is not None
    train = round(len(data.values) * TRAIN_SHARE)
    row: dict[str, Any] = {"attributes": attributes, "edges": edges, "graph": graph, "seed": seed}
    started = time.process_time()
    rng = np.random.default_rng(seed)
    plain = Searches(settings, lambda one: CentralizedVFedCD(one, attributes, rng)).fit(
        data.values[None, :train], data.values[None, train:]
    )
    row["float"] = _scores(data.truth, plain.strengths[0], plain.allowed[0], plain.thresholds[0], started)
    started = time.process_time()
    parts = np.array_split(np.arange(attributes), PARTIES)
    columns = {f"party_{at}": data.values[:, part] for at, part in enumerate(parts)}
    twin = discover_plaintext(columns, data.names, settings, train_rows=train, seed=seed)
    row["twin"] = _scores(data.truth, twin.strengths, twin.allowed, twin.threshold, started)
    return row


def _scores(
    truth: NDArray[Any], strengths: NDArray[Any], allowed: NDArray[Any], threshold: float, started: float
) -> dict[str, float]:
    graph = greedy_cut(np.where(allowed, strengths, 0.0), threshold, None, ~allowed)
    scores = graph_scores(truth, graph)
    return {
        "shd": float(scores["shd"]),
        "f1": round(float(scores["f1"]), 4),
        "cpu_s": round(time.process_time() - started, 1),
    }


def means(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By size: the mean SHD of both, and by how much the twin's is larger."""
    by_size: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_size.setdefault(f"{row['attributes']}/{row['edges']}", []).append(row)
    table = {}
    for size, some in by_size.items():
        shd = {kind: np.array([row[kind]["shd"] for row in some]) for kind in ("float", "twin")}
        difference = shd["twin"] - shd["float"]
        table[size] = {
            "fits": len(some),
            "float": float(shd["float"].mean()),
            "twin": float(shd["twin"].mean()),
            "difference": float(difference.mean()),
            "standard_error": float(difference.std(ddof=1) / np.sqrt(len(some))) if len(some) > 1 else float("nan"),
        }
    return table


def measure(
    sizes: Iterable[tuple[int, int]], graphs: Iterable[int], seeds: Iterable[int], settings: Settings, out: Path
) -> None:
    """Fill `out` with rows, one after the other; what is there already is not fitted again."""
    out.mkdir(parents=True, exist_ok=True)
    path, config = out / "rows.json", settings.model_dump(mode="json")
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if kept.get("settings") != config:
        kept = {"settings": config, "machine": describe_machine(cuda=False), "parties": PARTIES, "rows": []}
    names = ("attributes", "edges", "graph", "seed")
    done = {tuple(row[name] for name in names) for row in kept["rows"]}
    wanted = [(*size, graph, seed) for seed in seeds for graph in graphs for size in sizes]
    for place in wanted:
        if place in done:
            continue
        kept["rows"].append(compare(*place, settings))
        kept["means"] = means(kept["rows"])
        atomic_write(path, json.dumps(kept, indent=1).encode())
        print(json.dumps(kept["rows"][-1]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", required=True, help="attributes/edges")
    parser.add_argument("--graphs", default="200-204", help="seeds of the graphs, first-last")
    parser.add_argument("--seeds", type=int, default=1, help="of the algorithm, for each graph")
    parser.add_argument("--profile", default="recommended")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    first, last = map(int, given.graphs.split("-"))
    sizes = [(int(attributes), int(edges)) for attributes, edges in (size.split("/") for size in given.size)]
    settings = Settings(profile=given.profile)
    measure(sizes, list(range(first, last + 1)), list(range(given.seeds)), settings, given.out)


if __name__ == "__main__":
    main()
