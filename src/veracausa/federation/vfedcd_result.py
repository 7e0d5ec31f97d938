"""What VFedCD leaves at a site: at the validator all that it saw, at a party what it was sent."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.arrays import Mask
from veracausa.data.causal import CausalData, edges_between
from veracausa.discovery.engines.mpc.servers import computing
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.graphs import chosen_graph, is_acyclic, thresholded
from veracausa.discovery.job import DiscoveryJob, load_columns
from veracausa.discovery.methods.vfedcd.diagnostics import OPENED_FEATURES
from veracausa.discovery.methods.vfedcd.structure import rule_in_words
from veracausa.discovery.privacy.mechanism import said
from veracausa.discovery.result import DiscoveryResult, choice_in_words
from veracausa.discovery.result_files import write_found
from veracausa.federation.columns import all_names
from veracausa.federation.discovery_terms import SOLVABLE

if TYPE_CHECKING:
    from veracausa.federation.vfedcd_site import VFedCDSite


def write_vfedcd(site: VFedCDSite, result: DiscoveryResult, noise: Mapping[str, Any] | None, seconds: float) -> None:
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
        method.strengths_[inside] = np.nan_to_num(result.sent_to[site.me])
        adjacency = method.strengths_ > 0
        what = "edges that touch its own attributes" if method.reveal == "own" else "whole graph"
        notes.append(f"{site.me} was sent the {what}; strengths that are no edges are the validator's")
    method.adjacency_matrix_ = adjacency
    method.undirected_ = np.zeros_like(adjacency)
    method.threshold_ = result.threshold
    method.thresholded_ = thresholded(method.strengths_, result.threshold) if result.history else adjacency
    method.thresholded_is_dag_ = is_acyclic(method.thresholded_)
    method.feature_names_in_, method.n_features_in_ = np.array(names, dtype=object), d
    method.parties_ = {party: theirs.names for party, theirs in site.said.items()}
    method.engine_, method.confidence_ = "federated", None
    method.computing_ = computing(method.settings(), site.parties)
    method.history_, method.search_ = result.history, result.search
    sent = result.sent[site.me]
    method.sent_ = {site.me: {"messages": sent["messages"], "bytes_sent": sent["bytes"]}}
    method.noise_ = None if noise is None else dict(noise)
    if noise is not None:
        notes.append(said(noise))
    if not method.strong:
        notes.append(OPENED_FEATURES)
    method.notes_ = (*notes, *(warning for warning in site.warnings if warning != SOLVABLE))
    rows = next(iter(site.said.values())).rows
    data = CausalData(np.broadcast_to(0.0, (rows, d)), names, true_graph(site.job, names))
    write_found(site.path, site.job, method, data, dict(method.parties_), seconds)
    if site.me != VALIDATOR:
        for party in site.parties:
            if party != site.me:  # what they were sent is theirs
                shutil.rmtree(site.path / "parties" / party)


def true_graph(job: DiscoveryJob, names: tuple[str, ...]) -> Mask | None:
    """The true graph, where the job or its data set says it: a score is for experiments."""
    if "name" in job.data:
        data = load_columns(job)[0]
        at = [data.names.index(name) for name in names]
        return None if data.truth is None else data.truth[np.ix_(at, at)]
    return None if job.truth is None else edges_between(job.truth, names, "truth")
