"""What two openings of each batch tell of the products of people's foreign columns, with few or no rows known.

python experiments/vfedcd/gram.py results/vfedcd/audit/gram.json            # one search
python experiments/vfedcd/gram.py results/vfedcd/audit/gram-searches.json 3   # three, watched together
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.linalg import orthogonal_procrustes

from veracausa.attacks.columns import beside, regressed
from veracausa.attacks.methods.columns.gram import components
from veracausa.audit.discovery_recorder import DiscoveryRecording
from veracausa.audit.discovery_views import ViewWithTruth, single
from veracausa.data.causal import load_causal
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.runs.machine import describe_machine

GRAPHS = (1000, 1001, 1002)
GENERATORS = ("paper", "gp_additive")
PARTIES = 3
KNOWN = (3, 5, 7, 10, 15)
FIT = {"epochs": 4, "refit_epochs": 2, "seed": 0}


def read(seen: ViewWithTruth, rng: np.random.Generator) -> dict[str, float]:
    """One target's attack on what it opened: of all sources together, as the protocol opens them."""
    view, truth = seen.view, seen.truth
    found = components(beside(view.history), view.openings, view.columns)
    if found is None:
        return {}
    ours, theirs = found @ found.T, truth @ truth.T
    apart = np.triu_indices(len(truth), 1)
    distance = [np.sqrt(np.maximum(np.add.outer(np.diag(k), np.diag(k)) - 2 * k, 0))[apart] for k in (ours, theirs)]
    told: dict[str, float] = {
        "distances": float(np.corrcoef(*distance)[0, 1]),
        "error": float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)),
    }
    others = rng.permutation(len(theirs))
    told["distances by chance"] = float(np.corrcoef(distance[0], distance_of(theirs[np.ix_(others, others)]))[0, 1])
    for known in KNOWN:
        rows = rng.choice(len(truth), known, replace=False)
        rest = np.setdiff1d(np.arange(len(truth)), rows)
        # Rotated only, where the products are known; any linear map of the features, where they are not.
        turn = orthogonal_procrustes(found[rows], truth[rows])[0] if found.shape[1] == truth.shape[1] else None
        told[f"features, {known} rows"] = mean_r2(
            regressed(view.last.reshape(len(truth), -1)[rows], truth[rows], view.last.reshape(len(truth), -1))[rest],
            truth[rest],
        )
        if turn is not None:
            told[f"products, {known} rows"] = mean_r2((found @ turn)[rest], truth[rest])
        told[f"own columns, {known} rows"] = mean_r2(
            regressed(view.own[rows], truth[rows], view.own)[rest], truth[rest]
        )
    return told


def distance_of(k: np.ndarray) -> np.ndarray:
    squares = np.add.outer(np.diag(k), np.diag(k)) - 2 * k
    return np.sqrt(np.maximum(squares, 0))[np.triu_indices(len(k), 1)]


def mean_r2(guess: np.ndarray, truth: np.ndarray) -> float:
    rest = np.square(guess - truth).sum(0) / np.square(truth - truth.mean(0)).sum(0)
    return float(np.clip(1 - rest, 0, 1).mean())


def searches_of(profile: str, count: int) -> list[dict[str, Any]]:
    """The profile's own searches, so many of them, each with few epochs."""
    each = VFedCD(profile=profile).settings().searches[:count]
    return [one.model_dump(exclude_none=True) | {"epochs": FIT["epochs"]} for one in each] if count > 1 else []


def main(out: Path, count: int = 1) -> None:
    cells: dict[str, Any] = {}
    fit: dict[str, Any] = FIT | {"searches": searches_of("recommended", count)}
    about = {"fit": fit, "parties": PARTIES, "machine": describe_machine(cuda=False)}
    for generator in GENERATORS:
        for graph in GRAPHS:
            data = load_causal("suite", generator=generator, attributes=15, rows=1000, seed=graph)
            frame = pl.DataFrame(data.values, schema=list(data.names))
            names = np.array_split(np.array(data.names), PARTIES)
            parties = {f"party_{at + 1}": list(block) for at, block in enumerate(names)}
            recording = DiscoveryRecording()
            VFedCD(**fit, engine="federated").fit(frame, parties=parties, watch=recording.watch)
            found = [read(seen, np.random.default_rng(at)) for at, seen in enumerate(single(recording, 15, 0))]
            keys = sorted({key for one in found for key in one})
            cells[f"{generator} {graph}"] = {k: statistics.fmean(one[k] for one in found if k in one) for k in keys}
            print(
                f"{generator} {graph}: " + ", ".join(f"{k} {v:.3f}" for k, v in cells[f"{generator} {graph}"].items())
            )
            out.write_text(json.dumps({**about, "cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
