"""A learned graph in networkx: what reaches a column, and by which effects."""

from __future__ import annotations

import networkx as nx

import veracausa
from veracausa.data.causal import load_causal

data = load_causal("patients")
run = veracausa.discover(data, truth=data.truth, method="moments", name="patients")

# An edge whose direction the data do not tell has directed = "no". A DAG would hide that, so it is a choice:
# "mark" (as here), "refuse", "member" (one DAG of those that fit equally well) or "drop".
graph = run.to_networkx(undirected="mark")
for cause, effect, told in graph.edges(data=True):
    arrow = "—" if told.get("directed") == "no" else "→"
    print(f"{cause} {arrow} {effect}: {told['shape']}, {told['slope']:+.2f} deviations")

dag = run.to_networkx(undirected="member")
print("what reaches ldl:", ", ".join(sorted(nx.ancestors(dag, "ldl"))))
