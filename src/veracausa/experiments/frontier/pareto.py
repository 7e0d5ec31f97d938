"""From trials to points of accuracy and leakage, and the points that no other beats in both."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """One trained and attacked run of a defense at one setting."""

    defense: str
    setting: str
    """The setting in words, as `epsilon = 1.0, cut 6`; runs that differ only in their seed share it."""
    seed: int
    accuracy: float
    """What the task loses or keeps: accuracy, or the score in its place where classes are unbalanced."""
    leakage: Mapping[str, float]
    """What each attack read, 0 to 1; a defense is judged by the strongest."""

    @property
    def strongest(self) -> str:
        """The attack that read most."""
        return max(self.leakage, key=lambda name: self.leakage[name])


@dataclass(frozen=True)
class FrontierPoint:
    """One setting of a defense: means over its seeds, and their standard deviation (0 of a single seed)."""

    defense: str
    setting: str
    accuracy: float
    leakage: float
    """By the attack that read most of each run."""
    attack: str
    """The attack that most often was the strongest."""
    accuracy_spread: float = 0.0
    leakage_spread: float = 0.0
    seeds: int = 1


def points_of(trials: Iterable[Trial]) -> list[FrontierPoint]:
    """A point for every defense and setting, in the order of their first trials; the strongest attack counts."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        if not trial.leakage:
            raise ValueError(f"a trial of {trial.defense} ({trial.setting}) was attacked by nothing")
        groups.setdefault((trial.defense, trial.setting), []).append(trial)
    points = []
    for (defense, setting), own in groups.items():
        accuracies = [trial.accuracy for trial in own]
        leakages = [trial.leakage[trial.strongest] for trial in own]
        points.append(
            FrontierPoint(
                defense,
                setting,
                statistics.fmean(accuracies),
                statistics.fmean(leakages),
                Counter(trial.strongest for trial in own).most_common(1)[0][0],
                _spread(accuracies),
                _spread(leakages),
                len(own),
            )
        )
    return points


def pareto_front(points: Iterable[FrontierPoint]) -> list[FrontierPoint]:
    """The points that none beats, by rising accuracy: so leakage rises strictly, too.

    A point beats another if it is at least as accurate and leaks at most as much, and is better in one of the two. Of
    points that are equal in both, the first stays.
    """
    front: list[FrontierPoint] = []
    # From the most accurate down, each next one must leak less than all before it.
    for point in sorted(points, key=lambda point: (-point.accuracy, point.leakage)):
        if not front or point.leakage < front[-1].leakage:
            front.append(point)
    return front[::-1]


def trials_by_defense(trials: Iterable[Trial]) -> dict[str, int]:
    """How many different settings of each defense were tried."""
    settings: dict[str, set[str]] = {}
    for trial in trials:
        settings.setdefault(trial.defense, set()).add(trial.setting)
    return {defense: len(tried) for defense, tried in settings.items()}


def equal_trials(trials: Sequence[Trial], without: Iterable[str] = ("none",)) -> bool:
    """Whether every defense got the same number of settings to try; those of `without` have nothing to tune."""
    left_out = set(without)
    return len({count for defense, count in trials_by_defense(trials).items() if defense not in left_out}) <= 1


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
