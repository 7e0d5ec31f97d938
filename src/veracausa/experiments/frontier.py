"""Which defense at which setting: trials as points of accuracy and leakage, their front, and a fair comparison.

A point is one setting of a defense. The front has the points that no other beats in both. Defenses are compared at
the same accuracy or at the same leakage, read off between the points that were measured.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal


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


@dataclass(frozen=True)
class Matched:
    """What a defense reaches at a wanted accuracy or leakage, if it reaches it."""

    value: float | None
    """None: no point that was measured reaches what is wanted. Nothing is extrapolated."""
    spread: float = 0.0
    """The spread over seeds at the points it lies between."""
    bound: Literal["", "≤", "≥"] = ""
    """Set where every point is better than wanted: the value is the nearest one's, what could be had is no worse."""
    between: tuple[FrontierPoint, ...] = ()
    """The measured points it was read from: one or two."""

    @property
    def reached(self) -> bool:
        return self.value is not None

    def describe(self, digits: int = 1) -> str:
        """As a table says it, in per cent: `23.1`, `≤ 23.1` where it is a bound, or `not reached`."""
        if self.value is None:
            return "not reached"
        return f"{self.bound} {100 * self.value:.{digits}f}".strip()


def leakage_at(points: Iterable[FrontierPoint], accuracy: float) -> Matched:
    """The least leakage at this accuracy: straight between neighbours on the Pareto front, never beyond its ends.

    More accuracy than any point has is not reached. Where even the least accurate point of the front is more accurate,
    its leakage is a bound: a stronger setting, which nobody tried, might leak less.
    """
    front = pareto_front(points)
    return _read(
        front,
        accuracy,
        lambda point: point.accuracy,
        lambda point: point.leakage,
        lambda point: point.leakage_spread,
        "≤",
    )


def accuracy_at(points: Iterable[FrontierPoint], leakage: float) -> Matched:
    """The most accuracy at this leakage, in the same way; where every point leaks more, it is not reached."""
    front = pareto_front(points)[::-1]
    # Less leakage is better, as more accuracy is: with its sign turned the question is the same.
    return _read(
        front,
        -leakage,
        lambda point: -point.leakage,
        lambda point: point.accuracy,
        lambda point: point.accuracy_spread,
        "≥",
    )


def compare_at(
    points: Iterable[FrontierPoint], *, accuracy: float | None = None, leakage: float | None = None
) -> dict[str, Matched]:
    """Every defense at the same accuracy (its leakage) or the same leakage (its accuracy), the best first.

    Those that do not reach it come last.
    """
    if (accuracy is None) == (leakage is None):
        raise ValueError("compare at an accuracy or at a leakage: exactly one of them")
    own: dict[str, list[FrontierPoint]] = {}
    for point in points:
        own.setdefault(point.defense, []).append(point)
    if accuracy is not None:
        found = {defense: leakage_at(its, accuracy) for defense, its in own.items()}
        better = 1.0
    else:
        assert leakage is not None
        found = {defense: accuracy_at(its, leakage) for defense, its in own.items()}
        better = -1.0

    def worse(defense: str) -> tuple[bool, float]:
        value = found[defense].value
        return value is None, better * (value or 0.0)

    return {defense: found[defense] for defense in sorted(found, key=worse)}


def _read(
    front: list[FrontierPoint],
    wanted: float,
    given: Callable[[FrontierPoint], float],
    value: Callable[[FrontierPoint], float],
    spread: Callable[[FrontierPoint], float],
    bound: Literal["≤", "≥"],
) -> Matched:
    """The value at `wanted` along a front that is sorted by rising `given`."""
    if not front or wanted > given(front[-1]):
        return Matched(None)
    if wanted <= given(front[0]):
        first = front[0]
        return Matched(value(first), spread(first), bound if wanted < given(first) else "", (first,))
    for low, high in pairwise(front):
        if wanted <= given(high):
            share = (wanted - given(low)) / (given(high) - given(low))
            mixed = (1 - share) * value(low) + share * value(high)
            return Matched(mixed, (1 - share) * spread(low) + share * spread(high), "", (low, high))
    raise AssertionError("a wanted value within the front lies between two of its points")
