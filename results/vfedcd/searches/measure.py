"""Single searches on graphs that are for tuning: what each finds, and what it could be chosen by.

python results/vfedcd/searches/measure.py 15/60 100-119 0 >> results/vfedcd/searches/fits.jsonl
python results/vfedcd/searches/measure.py syntren 1-5 0 >> results/vfedcd/searches/fits.jsonl
python results/vfedcd/searches/measure.py table results/vfedcd/searches/fits.jsonl
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from veracausa.discovery.columns import prepare
from veracausa.discovery.data import load_causal
from veracausa.discovery.floating import FloatModel
from veracausa.discovery.settings import Settings

from veracausa.discovery.graphs import greedy_cut
from veracausa.metrics.graphs import graph_scores
from veracausa.seeding import derive

SEARCHES: dict[str, dict[str, Any]] = {
    "spectral": {"acyclicity": "spectral", "growth": 0.015},
    "trace": {"acyclicity": "trace_exponential", "growth": 0.02},
    "squares": {"acyclicity": "spectral_squares", "growth": 0.02},
    "slow": {"acyclicity": "spectral", "growth": 0.004, "epochs": 300},
}
KEPT = ("trace", "squares", "slow")
"""The recommended profile's."""


def fits(size: str, graphs: range, seed: int) -> None:
    """All graphs side by side, search by search; a line a fit."""
    data = [_data(size, number) for number in graphs]
    rows = [_rows(one.values, one.names, seed) for one in data]
    train, kept = (np.stack(part) for part in zip(*rows, strict=True))
    for name, own in SEARCHES.items():
        settings, started = Settings(searches=[], **own), time.process_time()
        rng = np.random.default_rng([seed, *name.encode()])
        model = FloatModel(settings, train.shape[2], rng, replicates=len(data))
        fit = model.fit(train, kept)
        seconds = (time.process_time() - started) / len(data)
        apart = model.held_out_loss(kept)
        for at, number in enumerate(graphs):
            allowed = fit.allowed[at]
            graph = greedy_cut(np.where(allowed, fit.strengths[at], 0.0), float(fit.thresholds[at]))
            scores = graph_scores(data[at].truth, graph)
            line = {"size": size, "graph": number, "seed": seed, "search": name, "shd": int(scores["shd"])}
            line |= {"f1": round(float(scores["f1"]), 4), "train": round(float(fit.score[at]), 4)}
            line |= {"held_out": round(float(apart[at]), 4), "cpu_s": round(seconds, 1)}
            line["against_the_order"] = int((data[at].truth & ~allowed).sum())
            print(json.dumps(line), flush=True)


def table(path: Path) -> None:
    """Mean SHD and F1 of each search, and of the profile's by what chooses among them."""
    found: dict[str, dict[tuple[int, int], dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        found[line["size"]][line["graph"], line["seed"]][line["search"]] = line
    for size, places in found.items():
        print(size, len(places), "fits of each")
        chosen = {name: [place[name] for place in places.values()] for name in SEARCHES}
        for rule, sign in (("train", 1), ("held_out", 1), ("f1", -1)):
            best = [min((place[n] for n in KEPT), key=lambda one: sign * one[rule]) for place in places.values()]
            chosen[f"the three, by {rule}"] = best
        for name, some in chosen.items():
            print(f"  {name}: {np.mean([x['shd'] for x in some]):.1f} / {np.mean([x['f1'] for x in some]):.3f}")


def _data(size: str, number: int) -> Any:
    if size == "syntren":
        return load_causal("syntren", number=number)
    attributes, edges = (int(part) for part in size.split("/"))
    return load_causal("synthetic", attributes=attributes, edges=edges, seed=number)


def _rows(values: np.ndarray, names: tuple[str, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(derive(seed, "discovery", "kept apart")).permutation(len(values))
    train = len(values) - round(0.2 * len(values))
    ready = prepare(values[order], names, train_rows=train, missing="median").values
    return ready[:train], ready[train:]


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(Path(sys.argv[2]))
    else:
        first, last = (int(part) for part in sys.argv[2].split("-"))
        fits(sys.argv[1], range(first, last + 1), int(sys.argv[3]))
