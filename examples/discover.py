"""Two parties hold different attributes of the same people; what causes what among all of them?"""

from __future__ import annotations

import numpy as np
import polars as pl

import veracausa

# Made-up patients: every relation is a straight line with normal noise, so some directions can not be told.
noise = np.random.default_rng(3).normal(size=(6, 800))
age = noise[0]
bmi = 0.7 * age + noise[1]
dose = 0.7 * bmi + noise[2]
crp = 0.7 * bmi + noise[3]
hba1c = 0.7 * age + 0.7 * bmi + noise[4]
ldl = 0.7 * dose + 0.7 * hba1c + noise[5]
people = pl.DataFrame({"age": age, "bmi": bmi, "dose": dose, "crp": crp, "hba1c": hba1c, "ldl": ldl})
parties = {"hospital": ["age", "bmi", "dose"], "lab": ["crp", "hba1c", "ldl"]}

# Each party makes functions of its columns at home, and sums over all 800 rows are all that is opened.
run = veracausa.discover(people, parties, method="moments", name="two_parties")

print(f"found {run.summary['edges']} edges, {len(run.summary['undirected'])} of them without a direction")
for edge in run.edges:
    arrow = "—" if edge["directed"] == "no" else "→"
    print(f"{edge['cause']} {arrow} {edge['effect']}: {edge['shape']}, {edge['slope']:+.2f} deviations")
print(f"page: {run.report()}")
