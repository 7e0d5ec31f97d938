"""What is read off at a wanted accuracy or leakage lies between measured points, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veracausa.experiments.frontier.matched import accuracy_at, compare_at, leakage_at
from veracausa.experiments.frontier.pareto import FrontierPoint, pareto_front

shares = st.floats(0, 1, allow_nan=False)


def at(accuracy: float, leakage: float, defense: str = "laplace", spread: float = 0.0) -> FrontierPoint:
    return FrontierPoint(defense, "", accuracy, leakage, "inverse", spread, spread)


CURVE = [at(0.5, 0.1, spread=0.02), at(0.7, 0.3, spread=0.04), at(0.9, 0.9), at(0.6, 0.8)]


def test_between_two_points_of_the_front_it_is_straight() -> None:
    found = leakage_at(CURVE, 0.6)
    assert found.value == pytest.approx(0.2)
    assert found.spread == pytest.approx(0.03)
    assert found.between == (CURVE[0], CURVE[1])
    assert accuracy_at(CURVE, 0.2).value == pytest.approx(0.6)
    assert found.written() == "20.0"


def test_beyond_the_points_nothing_is_invented() -> None:
    assert not leakage_at(CURVE, 0.91).reached
    assert leakage_at(CURVE, 0.91).written() == "not reached"
    assert not accuracy_at(CURVE, 0.05).reached
    easy = leakage_at(CURVE, 0.2)
    assert (easy.value, easy.bound, easy.written()) == (0.1, "≤", "≤ 10.0")
    assert accuracy_at(CURVE, 1.0).written() == "≥ 90.0"
    assert not leakage_at([], 0.5).reached


@given(st.lists(st.builds(at, shares, shares), min_size=1, max_size=12), shares, shares)
def test_more_accuracy_never_leaks_less_and_the_value_is_within_what_was_measured(
    points: list[FrontierPoint], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    easy, hard = leakage_at(points, low), leakage_at(points, high)
    assert easy.reached or not hard.reached
    if easy.value is not None and hard.value is not None:
        assert easy.value <= hard.value + 1e-9
    leakages = [point.leakage for point in pareto_front(points)]
    for found in (easy, hard):
        assert found.value is None or min(leakages) - 1e-9 <= found.value <= max(leakages) + 1e-9


@given(st.lists(st.builds(at, shares, shares), min_size=1, max_size=12))
def test_measured_points_of_the_front_are_read_back(points: list[FrontierPoint]) -> None:
    for point in pareto_front(points):
        assert leakage_at(points, point.accuracy).value == pytest.approx(point.leakage)
        assert accuracy_at(points, point.leakage).value == pytest.approx(point.accuracy)


def test_defenses_are_ranked_and_those_that_do_not_reach_it_come_last() -> None:
    weak = [at(0.8, 0.7, "prune"), at(0.6, 0.6, "prune")]
    never = [at(0.4, 0.01, "nopeek")]
    ranked = compare_at([*never, *weak, *CURVE], accuracy=0.6)
    assert list(ranked) == ["laplace", "prune", "nopeek"]
    assert ranked["nopeek"].value is None
    by_leakage = compare_at([*never, *weak, *CURVE], leakage=0.3)
    assert list(by_leakage) == ["laplace", "nopeek", "prune"]
    with pytest.raises(ValueError, match="exactly one"):
        compare_at(CURVE)
