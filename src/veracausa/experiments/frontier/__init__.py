"""Which defense at which setting: accuracy against leakage over many trials, compared fairly."""

from veracausa.experiments.frontier.matched import Matched, accuracy_at, compare_at, leakage_at
from veracausa.experiments.frontier.pareto import (
    FrontierPoint,
    Trial,
    equal_trials,
    pareto_front,
    points_of,
    trials_by_defense,
)

__all__ = [
    "FrontierPoint",
    "Matched",
    "Trial",
    "accuracy_at",
    "compare_at",
    "equal_trials",
    "leakage_at",
    "pareto_front",
    "points_of",
    "trials_by_defense",
]
