"""A learned graph in dowhy: the effect of one column on another, adjusted as the graph says."""

from __future__ import annotations

import pandas as pd
from dowhy import CausalModel

import veracausa
from veracausa.data.causal import load_causal

data = load_causal("patients")
people = pd.DataFrame(data.values, columns=list(data.names))
run = veracausa.discover(people, method="moments", name="patients")

# to_dowhy() refuses a graph in which some direction is not told. "member" takes one DAG of those that fit equally well.
model = CausalModel(people, treatment="hba1c", outcome="ldl", graph=run.to_dowhy(undirected="member"))
estimand = model.identify_effect()
print("adjusted for:", ", ".join(sorted(estimand.get_adjustment_set())) or "nothing")
effect = model.estimate_effect(estimand, method_name="backdoor.linear_regression")
print(f"one point of hba1c moves ldl by {effect.value:.0f} mg/dl")
