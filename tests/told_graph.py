"""A discovery from sums as a fit leaves it, made by hand: what files, pages and exports are tested with."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.data.causal import CausalData, edges_between
from veracausa.discovery.discover import DiscoveryRun
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods import build
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.result_files import write_found
from veracausa.runs import folder

NAMES = ("age", "bmi", "crp", "sex")
EDGES = (("age", "bmi"), ("bmi", "crp"), ("sex", "crp"))
OPEN = ("age", "bmi")
PARTIES = {"clinic": ("age", "bmi", "sex"), "lab": ("crp",)}
EFFECTS = (
    {"cause": "age", "effect": "bmi", "slope": 0.42, "slope_in_units": 0.11, "share": 0.12, "shape": "rises"},
    {"cause": "bmi", "effect": "crp", "slope": -0.3, "slope_in_units": None, "share": 0.5, "shape": "falls"},
    {"cause": "sex", "effect": "crp", "slope": math.nan, "slope_in_units": None, "share": 0.06, "shape": "categories"},
)


def fitted(estimator: str = "moments", **changes: Any) -> Any:
    """An estimator with three edges, one of them without a direction; `changes` are attributes of it."""
    method: Any = build(estimator)
    adjacency = edges_between(EDGES, NAMES, "edges")
    lines = edges_between([OPEN], NAMES, "edges")
    strengths = adjacency * np.array([[0.0, 0.35, 0, 0], [0, 0, 0.7, 0], [0, 0, 0, 0], [0, 0, 0.25, 0]])
    margins = adjacency * np.array([[0.0, 1.5, 0, 0], [0, 0, 8.25, 0], [0, 0, 0, 0], [0, 0, np.inf, 0]])
    margins[~adjacency] = 0.0
    none = np.zeros((4, 4))
    explained = np.array([0.0, 0.05, 0.56, np.nan])
    method.found_ = SumsFound(
        adjacency,
        lines | lines.T,
        strengths,
        none,
        none,
        margins,
        explained,
        "additive",
        (0, 1, 3, 2),
        {},
        ((0, 3, -0.21),),
    )
    method.n_features_in_, method.feature_names_in_ = 4, np.array(NAMES, dtype=object)
    method.adjacency_matrix_, method.undirected_ = adjacency, lines | lines.T
    method.strengths_, method.threshold_, method.history_ = strengths, 0.0, []
    method.parties_ = {"party": NAMES}
    method.thresholded_, method.thresholded_is_dag_ = adjacency, True
    method.explained_, method.effects_ = explained, [dict(effect) for effect in EFFECTS]
    method.model_, method.assumes_ = "additive", ("noise is added to what causes do", "no cycle")
    method.warnings_ = ("bmi: its causes explain 5 % of its variance",)
    method.notes_ = ("bmi: 3 values are missing",)
    method.announced_ = {"seconds": 6.2, "bytes": 4_100_000}
    method.engine_ = "one place"
    method.confidence_ = method.skeleton_confidence_ = None
    for name, value in changes.items():
        setattr(method, name, value)
    return method


def between_parties(**changes: Any) -> dict[str, Any]:
    """What such a fit has where parties summed up with a validator."""
    sent = {name: {"messages": 9, "bytes_sent": 2_000_000} for name in (*PARTIES, "validator")}
    own = {"engine_": "federated", "receiver": "validator", "encryption": "bfv", "reveal": "all", "sent_": sent}
    return {**own, "epsilon": None, "delta": 1e-5, **changes}


def written(
    path: Path, truth: bool = False, parties: bool = False, method: str = "moments", **changes: Any
) -> DiscoveryRun:
    """A run folder with the files of such a fit."""
    folder.make(path)
    held = dict(PARTIES) if parties else {}
    job = DiscoveryJob(name="told", method=method, data={"name": "given"}, parties=held)
    (path / "config.toml").write_text(job.to_toml(), encoding="utf-8")
    data = CausalData(np.zeros((50, 4)), NAMES, edges_between(EDGES, NAMES, "truth"))
    estimator = fitted(**({**between_parties(), **changes} if parties else changes))
    write_found(path, job, estimator, data if truth else replace(data, truth=None), held, 1.5)
    folder.set_status(path, state="done")
    return DiscoveryRun(path)
