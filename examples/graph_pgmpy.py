"""A learned graph in pgmpy: a partly directed graph as it is, and a Bayesian network of one of its DAGs."""

from __future__ import annotations

import pandas as pd
from pgmpy.models import LinearGaussianBayesianNetwork

import veracausa
from veracausa.data.causal import load_causal

data = load_causal("patients")
people = pd.DataFrame(data.values, columns=list(data.names))
run = veracausa.discover(people, method="moments", name="patients")

partly = run.to_pgmpy(undirected="pdag")
print(f"{len(partly.directed_edges)} directed and {len(partly.undirected_edges)} undirected edges")

# to_pgmpy() refuses a graph in which some direction is not told. "member" takes one DAG of those that fit equally well.
dag = run.to_pgmpy(undirected="member")
network = LinearGaussianBayesianNetwork(dag.edges)
network.fit(people)
print("fitted:", ", ".join(sorted(cpd.variable for cpd in network.cpds)))
