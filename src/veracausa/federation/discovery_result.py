"""What a discovery leaves at a site: at the validator all that it saw, at a party what it was told."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.data.causal import CausalData, edges_between
from veracausa.discovery.bootstrap import chosen_graph
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.graphs import is_acyclic, thresholded
from veracausa.discovery.job import load_columns
from veracausa.discovery.methods.vfedcd.diagnostics import OPENED_FEATURES
from veracausa.discovery.methods.vfedcd.searches import choice_in_words
from veracausa.discovery.methods.vfedcd.structure import rule_in_words
from veracausa.discovery.privacy.mechanism import said
from veracausa.discovery.result_files import write_found
from veracausa.federation.columns import all_names

if TYPE_CHECKING:
    from veracausa.federation.discovery_site import DiscoverySite


@dataclass
class Result:
    """What a program says while it runs and at its end."""

    strengths: Array = field(default_factory=lambda: np.zeros((0, 0)))
    allowed: Mask = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    threshold: float = math.nan
    held_out_loss: float = math.nan
    search: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    told: Array | None = None
    """(d, d) strengths of the edges that a party was told of; nan where it was told nothing."""
    sent: dict[str, int] = field(default_factory=dict)

    def hear(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "result":
                # The strong mode says it flat, for one search; else there is a first place for replicates.
                found = event.get("found") or {
                    "strengths": [event["strengths"]],
                    "allowed": [event["allowed"]],
                    "thresholds": [event["threshold"]],
                    "held_out_loss": [event["held_out_loss"]],
                    "search": [0],
                }
                self.strengths = np.array(found["strengths"][0])
                self.allowed = np.array(found["allowed"][0], dtype=bool)
                self.threshold = float(found["thresholds"][0])
                self.held_out_loss = float(found["held_out_loss"][0])
                self.search = int(found["search"][0])
                self.history = list(event["history"])
            case "told":
                self.told = np.array(event["graph"])
            case "finished":
                sent = event.get("sent", event)
                self.sent = {"messages": sent["messages"], "bytes_sent": sent["bytes"]}

    def graph(self, required: Mask) -> Mask:
        """The DAG that the validator found."""
        return chosen_graph(self.strengths, self.allowed, self.threshold, required)


def write_result(site: DiscoverySite, result: Result, noise: Mapping[str, Any] | None, seconds: float) -> None:
    """The files of a discovery in the site's run folder, as far as its member may know them."""
    method, names, d = site.method, all_names(site.said), len(all_names(site.said))
    inside = np.ix_(site.kept, site.kept)
    method.strengths_, adjacency = np.zeros((d, d)), np.zeros((d, d), dtype=bool)
    notes = list(site.notes)
    if site.me == VALIDATOR:
        method.strengths_[inside] = result.strengths
        allowed = np.zeros((d, d), dtype=bool)
        allowed[inside] = result.allowed
        adjacency = chosen_graph(method.strengths_, allowed, result.threshold, site.must)
        numeric = sum(int((~theirs.binary).sum()) for theirs in site.said.values())
        method.held_out_log_likelihood_ = -result.held_out_loss - 0.5 * math.log(2 * math.pi) * numeric
        notes += choice_in_words(method.settings(), result.search)
        rule = method.settings().threshold
        method.rule_ = rule_in_words(rule, result.strengths, result.allowed, result.threshold)
    else:
        assert result.told is not None
        method.strengths_[inside] = np.nan_to_num(result.told)
        adjacency = method.strengths_ > 0
        what = "edges that touch its own attributes" if method.reveal == "own" else "whole graph"
        notes.append(f"{site.me} was told the {what}; strengths that are no edges are the validator's")
    method.adjacency_matrix_ = adjacency
    method.threshold_ = result.threshold
    method.thresholded_ = thresholded(method.strengths_, result.threshold) if result.history else adjacency
    method.thresholded_is_dag_ = is_acyclic(method.thresholded_)
    method.feature_names_in_, method.n_features_in_ = np.array(names, dtype=object), d
    method.parties_ = {party: theirs.names for party, theirs in site.said.items()}
    method.engine_, method.confidence_ = "federated", None
    method.history_, method.search_ = result.history, result.search
    method.sent_ = {site.me: result.sent}
    method.noise_ = None if noise is None else dict(noise)
    if noise is not None:
        notes.append(said(noise))
    if not method.strong:
        notes.append(OPENED_FEATURES)
    method.notes_ = (*notes, *site.warnings)
    rows = next(iter(site.said.values())).rows
    data = CausalData(np.broadcast_to(0.0, (rows, d)), names, _truth(site, names))
    write_found(site.path, site.job, method, data, dict(method.parties_), seconds)
    if site.me != VALIDATOR:
        for party in site.parties:
            if party != site.me:  # what they were told is theirs
                shutil.rmtree(site.path / "parties" / party)


def _truth(site: DiscoverySite, names: tuple[str, ...]) -> Mask | None:
    """The true graph, where the job or its data set says it: a score is for experiments."""
    if "name" in site.job.data:
        truth = load_columns(site.job)[0].truth
        order = load_columns(site.job)[0].names
        at = [order.index(name) for name in names]
        return None if truth is None else truth[np.ix_(at, at)]
    return None if site.job.truth is None else edges_between(site.job.truth, names, "truth")
