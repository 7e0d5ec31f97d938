"""Trials become points by the strongest attack, and the front keeps the points that nothing beats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veracausa.experiments.frontier.pareto import (
    FrontierPoint,
    Trial,
    equal_trials,
    pareto_front,
    points_of,
    trials_by_defense,
)

shares = st.floats(0, 1, allow_nan=False)


def at(accuracy: float, leakage: float, defense: str = "laplace", setting: str = "") -> FrontierPoint:
    return FrontierPoint(defense, setting, accuracy, leakage, "inverse")


def test_a_point_is_the_mean_over_seeds_of_the_strongest_attack() -> None:
    trials = [
        Trial("laplace", "epsilon = 1", 0, 0.6, {"inverse": 0.3, "averaging": 0.5}),
        Trial("laplace", "epsilon = 1", 1, 0.8, {"inverse": 0.2, "averaging": 0.1}),
        Trial("laplace", "epsilon = 1", 2, 0.7, {"inverse": 0.3, "averaging": 0.6}),
        Trial("prune", "fraction = 0.9", 0, 0.9, {"inverse": 0.4}),
    ]
    laplace, prune = points_of(trials)
    assert laplace.accuracy == pytest.approx(0.7)
    assert laplace.leakage == pytest.approx((0.5 + 0.2 + 0.6) / 3)
    assert laplace.attack == "averaging"
    assert laplace.accuracy_spread == pytest.approx(0.1)
    assert laplace.seeds == 3
    assert (prune.accuracy, prune.leakage, prune.accuracy_spread, prune.seeds) == (0.9, 0.4, 0.0, 1)


def test_a_trial_that_nothing_attacked_is_refused() -> None:
    with pytest.raises(ValueError, match="attacked by nothing"):
        points_of([Trial("none", "", 0, 0.9, {})])


def test_the_front_drops_what_is_beaten_and_sorts_by_accuracy() -> None:
    best, safe, beaten, twin = at(0.9, 0.8), at(0.5, 0.1), at(0.6, 0.8), at(0.5, 0.1, "prune")
    assert pareto_front([beaten, best, safe, twin]) == [safe, best]


@given(st.lists(st.builds(at, shares, shares), min_size=1, max_size=30))
def test_nothing_beats_a_point_of_the_front_and_something_beats_every_other(points: list[FrontierPoint]) -> None:
    def beats(a: FrontierPoint, b: FrontierPoint) -> bool:
        return (
            a.accuracy >= b.accuracy and a.leakage <= b.leakage and (a.accuracy, a.leakage) != (b.accuracy, b.leakage)
        )

    front = pareto_front(points)
    assert front
    assert [point.accuracy for point in front] == sorted(point.accuracy for point in front)
    for point in points:
        same = any((kept.accuracy, kept.leakage) == (point.accuracy, point.leakage) for kept in front)
        assert same != any(beats(other, point) for other in points)


def test_unequal_numbers_of_settings_are_noticed_and_seeds_do_not_count() -> None:
    def trial(defense: str, setting: str, seed: int = 0) -> Trial:
        return Trial(defense, setting, seed, 0.5, {"inverse": 0.5})

    equal = [trial("none", ""), trial("laplace", "a"), trial("laplace", "b"), trial("prune", "c"), trial("prune", "d")]
    assert trials_by_defense(equal) == {"none": 1, "laplace": 2, "prune": 2}
    assert equal_trials([*equal, trial("laplace", "a", seed=1)])
    assert not equal_trials([*equal, trial("prune", "e")])
