"""The threshold between parties, before and after, on tables unlike each other:

python experiments/vfedcd/threshold.py 300-301 >> results/vfedcd/threshold/fits.jsonl
python experiments/vfedcd/threshold.py twin 300 >> results/vfedcd/threshold/twin_after.jsonl
python experiments/vfedcd/threshold.py table results/vfedcd/threshold/fits.jsonl

Each table is fitted once in floating point, with the recommended profile's first search. On the same fit stand the
former rule (edges inside parties alone), the present one, the comparison of whole graphs, which would open rows under
each of them, and the best threshold there is, by the true graph. The rule was chosen on thirty other such tables.
`twin` is what a federation finds, by the integers that its parties learn.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.data.causal import topological_order
from veracausa.data.causal.columns import standardised
from veracausa.data.causal.synthetic import SyntheticOptions, _mechanism, random_dag, synthetic
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.engines.shares.plaintext_twin import discover_plaintext
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd import structure as rules
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.metrics.graphs import graph_scores
from veracausa.runs.machine import describe_machine
from veracausa.seeding import derive

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SETTINGS = Settings(searches=())
TRAIN = 0.8
TABLES = [
    ("networks", 10, 40, 1000), ("networks", 15, 60, 1000), ("networks", 10, 15, 800),
    ("networks, noisy", 10, 20, 1000),
    ("linear", 6, 7, 800), ("linear", 8, 11, 800), ("linear", 12, 18, 1000),
    ("linear, exponential", 6, 7, 800), ("linear, exponential", 12, 18, 1000),
    ("sines", 6, 7, 800), ("sines", 12, 18, 1000), ("gaussian process", 8, 11, 800), ("quadratic", 8, 11, 800),
    ("mixed", 6, 8, 400), ("mixed", 12, 18, 1000),
]  # fmt: skip
"""Kind, attributes, edges, rows."""
SHARE = {"sines": 0.7, "gaussian process": 0.75, "quadratic": 0.75, "networks, noisy": 0.7, "mixed": 0.8}
"""Of an attribute's variance that its causes explain. Of `networks`, the product's generator, it is nearly all."""


def _gaussian_process(z: Array, rng: np.random.Generator) -> Array:
    waves = np.cos(np.outer(z, rng.normal(0, 1, 50)) + rng.uniform(0, 2 * np.pi, 50))
    return np.asarray(waves @ rng.normal(0, 1, 50))


def _mixed(z: Array, rng: np.random.Generator) -> Array:
    shape = (lambda: np.tanh(2 * z), lambda: np.maximum(z, 0), lambda: np.sin(1.5 * z), lambda: z)[rng.integers(4)]()
    return np.asarray(rng.uniform(0.7, 1.2) * rng.choice([-1, 1]) * (shape - shape.mean()) / shape.std())


SHAPES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "sines": lambda z, rng: rng.uniform(0.7, 1.3) * np.sin(rng.uniform(1, 2) * z + rng.uniform(-1, 1)),
    "gaussian process": _gaussian_process,
    "quadratic": lambda z, rng: rng.choice([-1, 1]) * (rng.uniform(0.3, 0.7) * z**2 + rng.uniform(0.3, 0.8) * z),
    "mixed": _mixed,
}


def make(kind: str, d: int, edges: int, rows: int, seed: int) -> tuple[Array, Mask]:
    """A standardised table and its graph."""
    if kind == "networks":
        options = SyntheticOptions(name="synthetic", attributes=d, edges=edges, rows=rows, seed=seed, train=TRAIN)
        data = synthetic(options)
        assert data.truth is not None
        return data.values, data.truth
    rng = np.random.default_rng(derive(seed, "tables", kind, d))
    truth = random_dag(d, edges, rng)
    order, values = topological_order(truth), np.zeros((rows, d))
    assert order is not None

    def noise(scale: float) -> Array:
        drawn = rng.exponential(1, rows) - 1 if kind == "linear, exponential" else rng.normal(0, 1, rows)
        return np.asarray(scale * drawn)

    for node in order:
        causes = standardised(values[:, truth[:, node]])[0]
        count = causes.shape[1]
        if not count:
            values[:, node] = noise(1.0)
        elif kind.startswith("linear"):
            weights = rng.uniform(0.4, 1.0, count) * rng.choice([-1, 1], count)
            values[:, node] = causes @ weights + noise(rng.uniform(0.6, 1.2))
        else:
            if kind == "networks, noisy":
                effect = _mechanism(causes, rng)
            else:
                effect = np.sum([SHAPES[kind](cause, rng) for cause in causes.T], axis=0)
            effect = (effect - effect.mean()) / effect.std() * np.sqrt(SHARE[kind])
            values[:, node] = effect + noise(np.sqrt(1 - SHARE[kind]))
    return standardised(values, round(TRAIN * rows))[0], truth


class Fitted:
    """One fit, and what the rules make of it."""

    def __init__(self, values: Array, seed: int) -> None:
        train = round(TRAIN * len(values))
        self.d, self.held_out = values.shape[1], values[None, train:]
        self.model = CentralizedVFedCD(SETTINGS, self.d, np.random.default_rng(seed))
        fit = self.model.fit(values[None, :train], self.held_out)
        self.allowed, self.compared = fit.allowed[0], float(fit.thresholds[0])
        self.strengths = np.where(self.allowed, fit.strengths[0], 0.0)
        turned = self.held_out.swapaxes(1, 2)
        self.empty = float(self.model.decoders.losses_without_causes(turned).sum())

    def loss(self, edges: Mask) -> float:
        return float(self.model.held_out_loss(self.held_out, edges & self.allowed)[0])

    def former(self, parties: int) -> float:
        """Edges inside parties ended weakest first, a·b³, and one made-up edge of strength 1 that says 0.65."""
        whose = np.concatenate([np.full(len(own), at) for at, own in enumerate(self._dealt(parties))])
        tried = self.allowed & (whose[:, None] == whose) & (self.strengths < 2)
        ordered = np.sort(self.strengths[tried])
        steps = np.unique(np.linspace(0, len(ordered), SETTINGS.candidates + 1).round().astype(int))
        kept = tried & (self.strengths >= np.append(ordered, np.inf)[steps][:, None, None])
        ended = np.where(tried & ~kept, self.strengths**3, 0.0).sum((1, 2))
        losses = np.array([self.loss(mask | ~tried) for mask in kept])
        least = SETTINGS.min_edge_gain * max(0.0, self.empty - losses.min()) / self.d
        slope = float((losses - losses[0]) @ ended + least / 0.65**3) / float(ended @ ended + 1)
        none = 2 * float(self.strengths.max())
        return none if losses.min() >= self.empty or slope * none**3 <= least else float((least / slope) ** (1 / 3))

    def present(self, parties: int) -> float:
        whole, sets, rises = self.loss(self.allowed), [], []
        for own in self._dealt(parties):
            for ended in rules.endings(self.strengths, slice(own[0], own[-1] + 1), SETTINGS.candidates):
                sets.append(ended)
                rises.append(self.loss(~ended) - whole)
        gain = rules.mean_gain(whole, self.empty, self.d)
        tried = self.strengths, self.allowed, np.array(sets), np.array(rises)
        return rules.worth_threshold(*tried, gain, SETTINGS.min_edge_gain, self.held_out.shape[1])

    def best(self, truth: Mask) -> float:
        strengths = np.sort(self.strengths[self.strengths > 0]) * (1 - 1e-9)
        return float(max(strengths, key=lambda tau: self.scored(truth, tau)["f1"]))

    def scored(self, truth: Mask, threshold: float) -> dict[str, float]:
        graph = greedy_cut(self.strengths, threshold, None, ~self.allowed)
        scores = graph_scores(truth, graph)
        names = ("shd", "f1", "skeleton_f1")
        found = {name: round(float(np.nan_to_num(scores[name])), 4) for name in names}
        return {"threshold": round(threshold, 4), **found, "edges": int(graph.sum())}

    def _dealt(self, parties: int) -> list[NDArray[np.int_]]:
        return np.array_split(np.arange(self.d), parties)


def measure(seeds: range) -> None:
    print(json.dumps({"machine": describe_machine(cuda=False), "settings": SETTINGS.model_dump(mode="json")}))
    for seed in seeds:
        for kind, d, edges, rows in TABLES:
            started = time.process_time()
            values, truth = make(kind, d, edges, rows, seed)
            fitted = Fitted(values, seed)
            found = {f"{name}, {k} parties": getattr(fitted, name)(k) for k in (2, 3) for name in ("former", "present")}
            found |= {"graphs": fitted.compared, "best": fitted.best(truth)}
            line: dict[str, Any] = {"table": kind, "attributes": d, "edges": edges, "rows": rows, "seed": seed}
            line |= {name: fitted.scored(truth, threshold) for name, threshold in found.items()}
            line["cpu_s"] = round(time.process_time() - started, 1)
            print(json.dumps(line), flush=True)


TWINS = (("linear", 6, 7, 800, 2), ("linear", 8, 11, 800, 3), ("mixed", 6, 8, 400, 2), ("networks", 10, 40, 1000, 3))


def twin(seed: int) -> None:
    """The federation itself, in one place: of the code that this is run with."""
    for kind, d, edges, rows, parties in TWINS:
        started = time.process_time()
        values, truth = make(kind, d, edges, rows, seed)
        dealt = np.array_split(values, parties, axis=1)
        columns = {f"party_{at}": part for at, part in enumerate(dealt)}
        names = [f"x{at}" for at in range(d)]
        fit = discover_plaintext(columns, names, SETTINGS, train_rows=round(TRAIN * rows), seed=seed)
        graph = greedy_cut(np.where(fit.allowed, fit.strengths, 0.0), fit.threshold, None, ~fit.allowed)
        scores = graph_scores(truth, graph)
        line = {"table": kind, "attributes": d, "edges": edges, "rows": rows, "parties": parties, "seed": seed}
        line |= {"threshold": round(fit.threshold, 4), "found": int(graph.sum()), "shd": int(scores["shd"])}
        line |= {name: round(float(np.nan_to_num(scores[name])), 4) for name in ("f1", "skeleton_f1")}
        print(json.dumps(line | {"cpu_s": round(time.process_time() - started, 1)}), flush=True)


def table(path: Path) -> None:
    """Means over seeds and over two and three parties: F1, SHD, skeleton F1 and edges by each rule."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cells: dict[tuple[Any, ...], list[list[float]]] = defaultdict(list)
    for line in lines:
        if "table" not in line:
            continue
        size = (line["table"], line["attributes"], line["edges"], line["rows"])
        for name, found in line.items():
            if isinstance(found, dict):
                figures = [found[key] for key in ("f1", "shd", "skeleton_f1", "edges")]
                cells[(*size, name.split(",")[0])].append(figures)
    kept = ("former", "present", "graphs", "best")
    print(f"| table | attributes/edges, rows | fits | {' | '.join(kept)} |")
    print("|---|---|---|" + "---|" * len(kept))
    sizes = dict.fromkeys(key[:4] for key in cells)
    for kind, d, edges, rows in sizes:
        means = [np.mean(cells[kind, d, edges, rows, name], axis=0) for name in kept]
        shown = " | ".join(f"{f1:.2f} / {shd:.1f} / {skeleton:.2f} / {count:.1f}" for f1, shd, skeleton, count in means)
        print(f"| {kind} | {d}/{edges}, {rows} | {len(cells[kind, d, edges, rows, 'best'])} | {shown} |")


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(Path(sys.argv[2]))
    elif sys.argv[1] == "twin":
        twin(int(sys.argv[2]))
    else:
        first, last = map(int, sys.argv[1].split("-"))
        measure(range(first, last + 1))
