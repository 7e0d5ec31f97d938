"""What noise costs: F1 and SHD of fits in floating point, one line of JSON each.

python experiments/vfedcd/privacy.py 1000 20000     # rows; clipped gradients with noise
python experiments/vfedcd/privacy.py laplace        # the published noise on strengths
"""

from __future__ import annotations

import json
import sys

import numpy as np

from veracausa.crypto.randomness import make_draws
from veracausa.data.causal import load_causal
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic, NoisyPenalty
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.mechanism import clip_rows
from veracausa.discovery.privacy.options import Privacy
from veracausa.discovery.privacy.party import PrivateCentralizedVFedCD
from veracausa.metrics.graphs import graph_scores

D, EDGES, SEED = 15, 60, 1
BUDGETS = (None, 1e12, 100.0, 10.0, 1.0)
"""None: neither clip nor noise. 10¹²: the clip, and noise that does not count."""
GRAPHS = (200, 201, 202)


def fitted(rows: int, graph: int, epsilon: float | None) -> dict[str, float | None]:
    data = load_causal("synthetic", attributes=D, edges=EDGES, rows=rows, seed=graph)
    settings = Settings(
        batch=rows // 10, epochs=40, refit_epochs=20, rate=0.1, growth=0.05, held_out=0.0, threshold="mixture"
    )
    rng, values = np.random.default_rng(SEED), data.values
    if epsilon is None:
        model = CentralizedVFedCD(settings, D, rng)
    else:
        privacy = Privacy(epsilon=epsilon, clip=20.0, values=1.5)
        values = clip_rows(values, privacy.values)
        model = PrivateCentralizedVFedCD(settings, D, rng, privacy, make_draws(SEED, "noise").masks(graph))
    with np.errstate(all="ignore"):
        fit = model.fit(values[None], values[None, :0])
    allowed, strengths = fit.allowed[0], np.where(fit.allowed[0], fit.strengths[0], 0.0)
    never, must = ~allowed, np.zeros((D, D), dtype=bool)
    found = graph_scores(data.truth, greedy_cut(strengths, float(fit.thresholds[0]), must, never))
    strongest = np.sort(strengths[allowed])[-EDGES]
    told = graph_scores(data.truth, greedy_cut(strengths, float(strongest), must, never))
    return {
        "rows": rows,
        "graph": graph,
        "epsilon": epsilon,
        "f1": found["f1"],
        "shd": found["shd"],
        "f1_of_the_strongest_60": told["f1"],
    }


def with_laplace(graph: int, epsilon: float | None) -> dict[str, float | None]:
    """The model as recommended, all of it in one place, with noise for three parties."""
    data = load_causal("synthetic", attributes=D, edges=EDGES, rows=1000, seed=graph)
    settings = Settings(acyclicity="spectral", growth=0.015, searches=[])  # as recommended when this was measured
    model = CentralizedVFedCD(settings, D, np.random.default_rng(SEED))
    if epsilon is not None:
        rule, source = LaplaceHeuristic(epsilon=epsilon), make_draws(SEED, "noise").masks(graph)
        model.structure.penalty = NoisyPenalty(model.structure.penalty, rule, 3, source)
    fit = model.fit(data.values[None, :800], data.values[None, 800:])
    allowed, strengths = fit.allowed[0], np.where(fit.allowed[0], fit.strengths[0], 0.0)
    must = np.zeros((D, D), dtype=bool)
    found = graph_scores(data.truth, greedy_cut(strengths, float(fit.thresholds[0]), must, ~allowed))
    return {"graph": graph, "epsilon": epsilon, "f1": found["f1"], "shd": found["shd"]}


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        for graph in GRAPHS:
            for epsilon in (None, 128.0, 64.0, 8.0, 1.0) if asked == "laplace" else BUDGETS:
                made = with_laplace(graph, epsilon) if asked == "laplace" else fitted(int(asked), graph, epsilon)
                print(json.dumps(made), flush=True)
