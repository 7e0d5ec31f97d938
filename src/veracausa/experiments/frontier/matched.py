"""Defenses at the same accuracy, or at the same leakage: read off between the points that were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from veracausa.experiments.frontier.pareto import FrontierPoint, pareto_front


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

    def written(self, digits: int = 1) -> str:
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
    return _read(front, accuracy, _accuracy, _leakage, lambda point: point.leakage_spread, "≤")


def accuracy_at(points: Iterable[FrontierPoint], leakage: float) -> Matched:
    """The most accuracy at this leakage, in the same way; where every point leaks more, it is not reached."""
    front = pareto_front(points)[::-1]
    # Less leakage is better, as more accuracy is: with its sign turned the question is the same.
    return _read(front, -leakage, lambda point: -point.leakage, _accuracy, lambda point: point.accuracy_spread, "≥")


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


def _accuracy(point: FrontierPoint) -> float:
    return point.accuracy


def _leakage(point: FrontierPoint) -> float:
    return point.leakage
