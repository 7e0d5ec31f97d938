"""Compare defenses that were tried at several settings: the front, and leakage at one accuracy."""

from veracausa.experiments.frontier import Trial, compare_at, pareto_front, points_of

trials = [
    Trial("laplace", "epsilon = 2", seed=0, accuracy=0.71, leakage={"inverse": 0.40, "averaging": 0.55}),
    Trial("laplace", "epsilon = 1", seed=0, accuracy=0.62, leakage={"inverse": 0.20, "averaging": 0.35}),
    Trial("prune", "fraction = 0.9", seed=0, accuracy=0.69, leakage={"inverse": 0.60}),
]
points = points_of(trials)  # one a setting: means over seeds, by the strongest attack
for point in pareto_front(points):  # prune is not among them: epsilon = 2 is more accurate, and leaks less
    print(point.setting)
for defense, found in compare_at(points, accuracy=0.66).items():
    print(f"{defense}: leakage {found.describe()} %")
