"""What a discovery from sums leaves at a site: the graph as far as its member was told it, and what was sent."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.data.causal import CausalData
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.methods.moments.found import SumsFound
from veracausa.discovery.result_files import write_found
from veracausa.federation.columns import all_names
from veracausa.federation.vfedcd_result import true_graph

if TYPE_CHECKING:
    from veracausa.federation.moments_site import MomentsSite


def write_moments(site: MomentsSite, heard: Mapping[str, Any], seconds: float) -> None:
    """The files of a discovery in the site's run folder."""
    method, names = site.method, all_names(site.said)
    method._take(_found(heard["found"]["found"]))
    method.feature_names_in_, method.n_features_in_ = np.array(names, dtype=object), len(names)
    method.notes_ = (*site.notes, *heard.get("notes", {}).get("notes", ()), *site.warnings)
    rows = next(iter(site.said.values())).rows
    data = CausalData(np.broadcast_to(0.0, (rows, len(names))), names, true_graph(site.job, names))
    parties = {party: theirs.names for party, theirs in site.said.items()}
    write_found(site.path, site.job, method, data, parties, seconds)
    if site.me != VALIDATOR:
        for party in site.parties:
            if party != site.me:  # what they were sent is theirs
                shutil.rmtree(site.path / "parties" / party)


def _found(told: Mapping[str, Any]) -> SumsFound:
    """What a member knows of the graph; a party has no order and no scores, and no edge where it was told nothing."""
    made: dict[str, Any] = {"order": ()}
    for name in SumsFound.__dataclass_fields__:
        if name in told:
            value = told[name]
            made[name] = np.nan_to_num(np.asarray(value, dtype=np.float64)) if isinstance(value, list) else value
    for name in ("adjacency", "undirected"):
        made[name] = made[name] > 0
    return SumsFound(**made)
