"""Why a search fails where causes explain less, and how often the test for uneven noise fires, on tuning graphs.

python experiments/vfedcd/beyond.py why 0-1        # the order or the refit? with the true order, and faster refits
python experiments/vfedcd/beyond.py test 4-4       # the profile general side by side: orders, refits, uneven effects
python experiments/vfedcd/beyond.py test 4-5 "gp joint" mlp    # the same, of these kinds
python experiments/vfedcd/beyond.py test 5-8 added    # the same, of all kinds whose noise is added
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from veracausa.data.causal import load_causal, topological_order
from veracausa.data.causal.columns import prepare
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.engines.staged import StagedSearch
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.residuals import MOST
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.start import moments_graph
from veracausa.discovery.result import Fit
from veracausa.metrics.graphs import graph_scores
from veracausa.seeding import derive

SKEWED = {"generator": "linear", "noise": "exponential"}
KINDS: dict[str, dict[str, Any]] = {
    "paper": {"generator": "paper"},
    "gp joint": {"generator": "gp_joint"},
    "gp additive": {"generator": "gp_additive"},
    "quadratics": {"generator": "quadratics"},
    "sines 50": {"generator": "sines", "explained": 0.5},
    "linear exponential": SKEWED,
    "paper 30": {"generator": "paper", "explained": 0.3},
}
ADDED: dict[str, dict[str, Any]] = {
    "multiple index": {"generator": "multiple_index"},
    "mlp": {"generator": "mlp"},
    "linear": {"generator": "linear"},
    "linear exponential 50": SKEWED | {"explained": 0.5},
    "quadratics bounded": {"generator": "quadratics_bounded"},
    "sines": {"generator": "sines"},
    "paper 95": {"generator": "paper", "explained": 0.95},
    "paper dense": {"generator": "paper", "edges": 60},
    "mlp scale-free": {"generator": "mlp", "graph": "scale_free"},
}
UNEVEN: dict[str, dict[str, Any]] = {
    "heteroscedastic": {"generator": "heteroscedastic"},
    "multiplied": {"generator": "multiplied"},
    "counts": {"generator": "counts", "standardise": False},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "the first search of recommended": {},
    "the true order": {"epochs": 1},
    "the true order, refit_noisy_rate 5": {"epochs": 1, "refit_noisy_rate": 5},
    "refit_noisy_rate 5": {"refit_noisy_rate": 5},
    "noisy_rate and refit_noisy_rate 5": {"noisy_rate": 5, "refit_noisy_rate": 5},
}


def tables(kinds: dict[str, dict[str, Any]], graphs: range) -> tuple[list[str], np.ndarray, np.ndarray, list[Any]]:
    """All tables, a replicate each: training rows and held-out rows as a fit with seed 0 has them, and true graphs."""
    names, train, apart, truths = [], [], [], []
    for kind, options in kinds.items():
        for number in graphs:
            data = load_causal("suite", seed=number, **options)
            order = np.random.default_rng(derive(0, "discovery", "kept apart")).permutation(len(data.values))
            count = len(order) - round(0.2 * len(order))
            rows = prepare(data.values[order], data.names, train_rows=count, missing="median").values
            names.append(f"{kind}, {number}")
            train.append(rows[:count])
            apart.append(rows[count:])
            truths.append(data.truth)
    return names, np.stack(train), np.stack(apart), truths


def told(names: list[str], truths: list[Any], fit: Fit) -> None:
    """A line a kind: edges against the order, F1, and F1 with the threshold that the truth would choose."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for at, (name, truth) in enumerate(zip(names, truths, strict=True)):
        allowed = fit.allowed[at]
        strengths = np.where(allowed, fit.strengths[at], 0.0)
        graph = greedy_cut(strengths, float(fit.thresholds[at]), None, ~allowed)
        best = max(graph_scores(truth, strengths >= level)["f1"] for level in np.unique(strengths[strengths > 0]))
        line = float((truth & ~allowed).sum()), float(graph_scores(truth, graph)["f1"]), float(best)
        found.setdefault(name.split(",")[0], []).append(line)
    for kind, lines in found.items():
        against, f1, best = np.mean(lines, axis=0)
        print(f"  {kind}: {against:.1f} true edges against the order, F1 {f1:.3f}, by the best threshold {best:.3f}")


def why(graphs: range) -> None:
    names, train, apart, truths = tables(KINDS, graphs)
    for variant, own in VARIANTS.items():
        started = time.process_time()
        model = CentralizedVFedCD(
            Settings(searches=[], **own), train.shape[2], np.random.default_rng(0), replicates=len(names)
        )
        if "true order" in variant:
            model.structure.allowed = model.structure.allowed & np.stack([_order(truth) for truth in truths])
            model.weights *= model.structure.allowed[..., None]
        fit = model.fit(train, apart)
        print(f"{variant} ({time.process_time() - started:.0f} s)")
        told(names, truths, fit)


def test(graphs: range, *kinds: str) -> None:
    known = KINDS | ADDED if kinds == ("added",) else KINDS | ADDED | UNEVEN
    chosen = {kind: options for kind, options in known.items() if kind in kinds or kinds in ((), ("added",))}
    names, train, apart, truths = tables(chosen, graphs)
    each = [moments_graph(rows, [f"x{at}" for at in range(rows.shape[1])], seed=0) for rows in train]
    start, stands = np.stack([graph for graph, _ in each]), np.array([lines for _, lines in each])
    rng = np.random.default_rng(0)

    def make(one: Settings, copies: int = 1) -> CentralizedVFedCD:
        return CentralizedVFedCD(one, train.shape[2], rng, replicates=copies * len(names))

    model = StagedSearch(Settings(profile="general"), make, start, stands)
    fit = model.fit(train, apart)
    told(names, truths, fit)
    for at, name in enumerate(names):
        uneven, effects = model.counted[at]
        order = ("moments, of lines" if stands[at] else "moments") if fit.search[at] < 0 else "the search"
        line = f"order of {order}, refit {int(model.refit[at])}, noise uneven in {uneven} of {effects} effects"
        if effects and uneven >= MOST * effects:
            gain = model.even_loss[at] - model.loss[at]
            error = gain.std() / np.sqrt(len(gain))
            line += f", held-out rows {gain.mean():+.3f} ± {error:.3f} nats for uneven noise, "
            line += "taken" if model.uneven[at] else "not taken"
        print(f"  {name}: {line}")


def _order(truth: Any) -> Any:
    rank = np.argsort(np.array(topological_order(truth)))
    return rank[:, None] < rank[None, :]


if __name__ == "__main__":
    first, last = (int(part) for part in sys.argv[2].split("-"))
    if sys.argv[1] == "why":
        why(range(first, last + 1))
    else:
        test(range(first, last + 1), *sys.argv[3:])
