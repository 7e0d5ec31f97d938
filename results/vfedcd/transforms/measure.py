"""Why some noise misleads: single searches with other columns, another likelihood, or the true order.

python results/vfedcd/transforms/measure.py searches 30/120:poisson 100-104 0 >> results/vfedcd/transforms/fits.jsonl
python results/vfedcd/transforms/measure.py columns 30/120:poisson 100-102 0 >> results/vfedcd/transforms/fits.jsonl
python results/vfedcd/transforms/measure.py table results/vfedcd/transforms/fits.jsonl
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from veracausa.discovery.columns import prepare, standardised
from veracausa.discovery.data import load_causal
from veracausa.discovery.floating import FloatModel
from veracausa.discovery.settings import Settings

from veracausa.discovery.graphs import greedy_cut, topological_order
from veracausa.metrics.graphs import graph_scores
from veracausa.seeding import derive

SLOW = {"acyclicity": "spectral", "growth": 0.004, "epochs": 300}
SEARCHES: dict[str, dict[str, Any]] = {
    "trace": {},
    "squares": {"acyclicity": "spectral_squares"},
    "slow": SLOW,
    "trace, heteroscedastic": {"likelihood": "heteroscedastic"},
    "squares, heteroscedastic": {"acyclicity": "spectral_squares", "likelihood": "heteroscedastic"},
    "slow, heteroscedastic": {**SLOW, "likelihood": "heteroscedastic"},
}
GAUSSIAN = tuple(SEARCHES)[:3]
OTHER = tuple(SEARCHES)[3:]
COLUMNS = ("standard", "normal_scores", "asinh", "clip")


def searches(kind: str, numbers: range, seed: int) -> None:
    for number in numbers:
        for name, own in SEARCHES.items():
            one(kind, number, seed, name, own)


def columns(kind: str, numbers: range, seed: int) -> None:
    for number in numbers:
        for transform in COLUMNS:
            one(kind, number, seed, "trace", {}, transform)
            one(kind, number, seed, "trace", {"epochs": 1}, transform, true_order=True)


def one(
    kind: str,
    number: int,
    seed: int,
    name: str,
    own: dict[str, Any],
    transform: str = "standard",
    true_order: bool = False,
) -> None:
    """A line with what one search found."""
    data = _data(kind, number)
    train, apart, binary, kept = _rows(data.values, data.names, seed, transform)
    truth = data.truth[np.ix_(kept, kept)]
    place = np.argsort(topological_order(truth))
    settings = Settings(searches=[], **own)
    rng = np.random.default_rng([seed, *name.encode()])
    against = place[:, None] >= place if true_order else None
    started = time.process_time()
    model = FloatModel(settings, len(kept), rng, binary=binary, forbidden=against)
    fit = model.fit(train[None], apart[None])
    strengths = np.where(fit.allowed[0], fit.strengths[0], 0.0)
    graph = np.zeros_like(data.truth)
    graph[np.ix_(kept, kept)] = greedy_cut(strengths, float(fit.thresholds[0]))
    taus = np.quantile(strengths[fit.allowed[0]], np.linspace(0, 0.999, 60))
    scores = graph_scores(data.truth, graph)
    line = {"kind": kind, "graph": number, "seed": seed, "search": name, "columns": transform, "true_order": true_order}
    line |= {"shd": int(scores["shd"]), "f1": round(float(scores["f1"]), 4), "edges": int(graph.sum())}
    line["f1_best_threshold"] = round(max(float(graph_scores(truth, greedy_cut(strengths, t))["f1"]) for t in taus), 4)
    line |= {"against_the_order": int((truth & ~fit.allowed[0]).sum()), "train": round(float(fit.score[0]), 4)}
    line |= {"apart": round(float(fit.apart[0]), 4), "cpu_s": round(time.process_time() - started, 1)}
    print(json.dumps(line), flush=True)


def table(path: Path) -> None:
    """Means of each search, and of what the likelihood chooses."""
    found: dict[Any, dict[tuple[int, int], dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        found[line["kind"], line["columns"], line["true_order"]][line["graph"], line["seed"]][line["search"]] = line
    for what, places in found.items():
        print(*what, len(places), "fits of each")
        chosen = {name: [place[name] for place in places.values() if name in place] for name in SEARCHES}
        whole = [place for place in places.values() if len(place) == len(SEARCHES)]
        if whole:
            one = [min((place[n] for n in GAUSSIAN), key=lambda one: one["train"]) for place in whole]
            other = [min((place[n] for n in OTHER), key=lambda one: one["train"]) for place in whole]
            chosen |= {"three gaussian, by training rows": one, "three heteroscedastic, by training rows": other}
            pairs = zip(one, other, strict=True)
            chosen["one of these two, by rows apart"] = [a if a["apart"] <= b["apart"] else b for a, b in pairs]
        for name, some in chosen.items():
            if some:
                means = {
                    k: np.mean([x[k] for x in some])
                    for k in ("shd", "f1", "f1_best_threshold", "edges", "against_the_order")
                }
                taken = sum("hetero" in x["search"] for x in some)
                print(f"  {name}: " + ", ".join(f"{k} {v:.3f}" for k, v in means.items()), f"({taken} heteroscedastic)")


def _data(kind: str, number: int) -> Any:
    if kind == "syntren":
        return load_causal("syntren", number=number)
    if kind.startswith("sachs"):
        return load_causal("sachs", log=kind.endswith("log"))
    size, _, violation = kind.partition(":")
    attributes, edges = (int(part) for part in size.split("/"))
    return load_causal("synthetic", attributes=attributes, edges=edges, seed=number, violation=violation or "none")


def _rows(values: np.ndarray, names: tuple[str, ...], seed: int, transform: str) -> tuple[np.ndarray, ...]:
    order = np.random.default_rng(derive(seed, "discovery", "kept apart")).permutation(len(values))
    train = len(values) - round(0.2 * len(values))
    ready = prepare(values[order], names, train_rows=train)
    fitted = ready.values.copy()
    if transform == "normal_scores":
        fitted = np.stack([_normal_scores(column, train) for column in fitted.T], axis=1)
    elif transform == "asinh":
        fitted = np.arcsinh(fitted)
    elif transform == "clip":
        fitted = np.clip(fitted, -3, 3)
    if transform != "clip":
        fitted = standardised(fitted, train)[0]
    binary = np.array(ready.binary)
    fitted[:, binary] = (fitted > (fitted.min(axis=0) + fitted.max(axis=0)) / 2)[:, binary]
    return fitted[:train], fitted[train:], binary, np.array(ready.kept)


def _normal_scores(column: np.ndarray, train: int) -> np.ndarray:
    """By the training rows' ranks, those of equal values averaged."""
    known = np.sort(column[:train])
    rank = (np.searchsorted(known, column, "left") + np.searchsorted(known, column, "right")) / 2
    return ndtri(np.clip(rank / train, 0.5 / train, 1 - 0.5 / train))


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(Path(sys.argv[2]))
    else:
        first, last = (int(part) for part in sys.argv[3].split("-"))
        {"searches": searches, "columns": columns}[sys.argv[1]](sys.argv[2], range(first, last + 1), int(sys.argv[4]))
