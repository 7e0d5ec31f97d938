"""What the rules for the threshold find, on the same fits: python measure.py 15/60 100-104 3 >> rules.jsonl

One search in floating point for each graph and seed. `held_out_graphs` compares candidate graphs on rows kept apart;
`held_out, K parties` ends edges within K parties only, as a federation does; `typical` is the constant that decides
where there are none. That rule has gone since: experiments/vfedcd/threshold.py measures the one in its place.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from veracausa.discovery.data.synthetic import SyntheticOptions, synthetic
from veracausa.discovery.floating import FloatModel
from veracausa.discovery.settings import Settings
from veracausa.discovery.threshold import mixture_threshold

from veracausa.discovery.graphs import greedy_cut
from veracausa.metrics.graphs import graph_scores

TYPICAL, IN_DOUBT = 0.65, 2.0
"""Of the rule as it was: what one made-up edge of strength 1 says, and from which strength edges are not tried."""
SETTINGS = Settings(growth=0.015, acyclicity="spectral", searches=())
TRAIN = 800


def weakest_first(strengths: np.ndarray, tried: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Tried edges ended in so many steps, from none to all: which are kept, and the sum of b³ over those that ended."""
    ordered = np.sort(strengths[tried])
    ended = np.unique(np.linspace(0, len(ordered), count + 1).round().astype(int))
    kept = tried & (strengths >= np.append(ordered, np.inf)[ended][:, None, None])
    return kept, np.where(tried & ~kept, strengths**3, 0.0).sum((1, 2))


def worth_threshold(ended: np.ndarray, losses: np.ndarray, empty: float, d: int, worth: float, most: float) -> float:
    """The strength from which an edge was worth its place: a·b³ fitted to edges that ended, and to a typical one."""
    least = worth * max(0.0, empty - float(losses.min())) / d
    slope = float((losses - losses[0]) @ ended + least / TYPICAL**3) / float(ended @ ended + 1)
    if losses.min() >= empty or slope * (2 * most) ** 3 <= least:
        return 2 * most
    return float((least / slope) ** (1 / 3))


def by_own_edges(
    model: FloatModel, rows: np.ndarray, strengths: np.ndarray, allowed: np.ndarray, parties: int
) -> float:
    """The rule `held_out` of so many parties, attributes dealt in their order."""
    d = len(allowed)
    party = np.concatenate([np.full(len(own), at) for at, own in enumerate(np.array_split(np.arange(d), parties))])
    tried = allowed & (party[:, None] == party) & (strengths < IN_DOUBT)
    kept, ended = weakest_first(strengths, tried, SETTINGS.candidates)
    losses = np.array([float(model.held_out_loss(rows, allowed & (mask | ~tried))[0]) for mask in kept])
    empty = float(model.decoders.losses_without_causes(rows.swapaxes(1, 2)).sum())
    return worth_threshold(ended, losses, empty, d, SETTINGS.edge_worth, float(strengths.max()))


def rules(
    model: FloatModel, rows: np.ndarray, strengths: np.ndarray, allowed: np.ndarray, compared: float
) -> dict[str, float]:
    found = {f"held_out, {count} parties": by_own_edges(model, rows, strengths, allowed, count) for count in (2, 3, 5)}
    return {"held_out_graphs": compared, **found, "mixture": mixture_threshold(strengths, allowed), "typical": TYPICAL}


def scored(truth: np.ndarray, strengths: np.ndarray, allowed: np.ndarray, threshold: float) -> dict[str, float]:
    scores = graph_scores(truth, greedy_cut(strengths, threshold, None, ~allowed))
    return {"threshold": round(threshold, 4), "shd": float(scores["shd"]), "f1": round(float(scores["f1"]), 4)}


def main() -> None:
    size, graphs, seeds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    d, edges = map(int, size.split("/"))
    first, last = map(int, graphs.split("-"))
    for graph in range(first, last + 1):
        data = synthetic(SyntheticOptions(name="synthetic", attributes=d, edges=edges, seed=graph))
        train, rows = data.values[None, :TRAIN], data.values[None, TRAIN:]
        for seed in range(seeds):
            model = FloatModel(SETTINGS, d, np.random.default_rng(seed))
            fit = model.fit(train, rows)
            strengths, allowed = np.where(fit.allowed[0], fit.strengths[0], 0.0), fit.allowed[0]
            found = rules(model, rows, strengths, allowed, float(fit.thresholds[0]))
            row: dict[str, Any] = {"size": size, "graph": graph, "seed": seed}
            row |= {name: scored(data.truth, strengths, allowed, threshold) for name, threshold in found.items()}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
