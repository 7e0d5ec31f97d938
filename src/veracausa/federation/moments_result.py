"""What a discovery from sums leaves at a site: the graph as far as its member was told it, and what it sent."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.data.causal import CausalData
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.engines.sums.cost import expected_cost
from veracausa.discovery.engines.sums.launch import found_of, shares_of
from veracausa.discovery.engines.sums.words import noise_in_words, protection_in_words
from veracausa.discovery.methods.moments.diagnostics import doubts, few_rows
from veracausa.discovery.result_files import write_found
from veracausa.federation.columns import all_names
from veracausa.federation.vfedcd_result import true_graph

if TYPE_CHECKING:
    from veracausa.federation.moments_site import MomentsSite


def write_moments(site: MomentsSite, heard: Mapping[str, Any], seconds: float) -> None:
    """The files of a discovery in the site's run folder; `heard` has what its program reported, by event."""
    assert site.plan is not None
    method, plan, names = site.method, site.plan, all_names(site.said)
    told, account = heard["found"]["found"], heard["found"]["account"]
    found = found_of(told)
    parties = {party: theirs.names for party, theirs in site.said.items()}
    method.engine_, method.history_ = "federated", []
    method.take_found(found, names, parties, shares_of(told), site.known.required)
    sent = heard["finished"]["sent"]
    method.sent_ = {site.me: {"messages": sent["messages"], "bytes_sent": sent["bytes"]}}
    method.noise_ = noise_in_words(plan, account)
    method.announced_ = expected_cost(plan).state()
    own = heard.get("notes", {})
    notes = [*site.notes, *own.get("notes", ()), *few_rows(plan.rows), *protection_in_words(plan)]
    if not heard["found"]["whole"]:
        notes.append(f"{site.me} was sent the edges that touch its own columns; the others are the validator's")
    method.notes_ = tuple(dict.fromkeys([*notes, *site.warnings]))
    method.warnings_ = tuple(dict.fromkeys([*own.get("warnings", ()), *doubts(found, names)]))
    data = CausalData(np.broadcast_to(0.0, (plan.rows, len(names))), names, true_graph(site.job, names))
    write_found(site.path, site.job, method, data, parties, seconds)
    if site.me != VALIDATOR:
        for party in site.parties:
            if party != site.me:  # what they were sent is theirs
                shutil.rmtree(site.path / "parties" / party)
