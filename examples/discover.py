"""Two parties hold different attributes of the same people; what causes what among all of them?"""

from __future__ import annotations

import polars as pl

import veracausa
from veracausa.data.causal import load_causal

data = load_causal("synthetic", attributes=6, edges=7, rows=400, seed=2)
people = pl.DataFrame(data.values, schema=list(data.names))
parties = {"hospital": ["x0", "x1", "x2"], "lab": ["x3", "x4", "x5"]}

# Every party and a validator run as programs of their own. Nothing is encrypted here: it is a simulation.
# Fewer epochs than the default, and one search, because it is an example.
run = veracausa.discover(people, parties, truth=data.truth, epochs=20, refit_epochs=20, searches=[], name="two_parties")

summary = run.summary
shd, empty = summary["shd"], summary["empty_graph_shd"]
print(f"found {summary['edges']} edges, SHD {shd} to the true graph (an empty graph: {empty})")
for edge in run.edges:
    print(f"{edge['cause']} -> {edge['effect']} {edge['strength']:.2f}")
print(f"page: {run.report()}")
