"""Points, their front, what is read off between them, and the one setting that is recommended."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veracausa.config import load_job
from veracausa.defenses import defenses
from veracausa.experiments.advice import Constraint, nothing_to_compare, recommend, snippet
from veracausa.experiments.frontier import (
    FrontierPoint,
    Trial,
    accuracy_at,
    compare_at,
    equal_trials,
    leakage_at,
    pareto_front,
    points_of,
    trials_by_defense,
)
from veracausa.experiments.trial import Setting

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
    assert found.describe() == "20.0"


def test_beyond_the_points_nothing_is_invented() -> None:
    assert not leakage_at(CURVE, 0.91).reached
    assert leakage_at(CURVE, 0.91).describe() == "not reached"
    assert not accuracy_at(CURVE, 0.05).reached
    easy = leakage_at(CURVE, 0.2)
    assert (easy.value, easy.bound, easy.describe()) == (0.1, "≤", "≤ 10.0")
    assert accuracy_at(CURVE, 1.0).describe() == "≥ 90.0"
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


POINTS = [
    FrontierPoint("none", "", 0.80, 0.90, "inverse"),
    FrontierPoint("laplace", "epsilon = 2", 0.79, 0.50, "averaging"),
    FrontierPoint("laplace", "epsilon = 1", 0.60, 0.20, "averaging"),
    FrontierPoint("prune", "fraction = 0.9", 0.78, 0.60, "inverse"),
]


def test_the_least_leakage_with_the_wanted_accuracy() -> None:
    found = recommend(POINTS, Constraint(accuracy=0.7))
    assert found.point == POINTS[1]
    assert "least leakage measured under these attacks" in found.why
    assert "accuracy 79.0 %, leakage 50.0 % (by averaging)" in found.sentence
    assert recommend(POINTS, Constraint.near(0.80)).point == POINTS[1]


def test_the_most_accuracy_with_the_wanted_leakage() -> None:
    assert recommend(POINTS, Constraint(leakage=0.3)).point == POINTS[2]
    assert recommend(POINTS, Constraint(leakage=0.65)).point == POINTS[1]


def test_what_nobody_reached_is_said_and_nothing_is_recommended() -> None:
    accurate = recommend(POINTS, Constraint(accuracy=0.95))
    assert accurate.point is None
    assert accurate.sentence == "No setting that was tried reached an accuracy of at least 95.0 %."
    assert accurate.why.startswith("The undefended job has the highest accuracy")
    safe = recommend(POINTS, Constraint(leakage=0.05))
    assert safe.sentence == "No setting that was tried reached a leakage of at most 5.0 %."
    assert "laplace (epsilon = 1) leaks least" in safe.why.lower()


def test_a_defense_that_buys_nothing_is_not_recommended() -> None:
    worse = [POINTS[0], FrontierPoint("prune", "", 0.79, 0.95, "inverse")]
    found = recommend(worse, Constraint.near(0.8))
    assert found.point == POINTS[0]
    assert "Of 1 defended setting tried, none does better there" in found.why
    assert "Nearest to it" not in found.why
    dearer = FrontierPoint("laplace", "", 0.77, 0.1, "inverse")
    assert (
        "Nearest to it is laplace: accuracy 77.0 %, leakage 10.0 % (by inverse)."
        in recommend([*worse, dearer], Constraint.near(0.8)).why
    )


def test_an_area_is_no_share() -> None:
    points = recommend(POINTS, Constraint.near(0.80))
    assert "accuracy of at least 78.0 %, 2 points under the undefended job’s" in points.why
    found = recommend(POINTS, Constraint.near(0.80, "auc"))
    assert "AUC 0.790, leakage 50.0 %" in found.sentence
    assert "AUC of at least 0.780, 0.020 under the undefended job’s" in found.why
    assert recommend(POINTS, Constraint(accuracy=0.95, score="auc")).sentence.endswith(
        "reached an AUC of at least 0.950."
    )


def test_without_a_defended_trial_nothing_is_recommended() -> None:
    for found in (
        nothing_to_compare(0, 0, "4m", "9m"),
        nothing_to_compare(3, 0, "4m", "9m"),
        nothing_to_compare(3, 2, "4m", "9m"),
    ):
        assert found.point is None
        assert "undefended" not in f"{found.sentence} {found.why}"
    assert "4m was too little time" in found.sentence
    assert "--resume --budget 9m" in found.why


def test_no_word_promises_privacy() -> None:
    for wish in (Constraint(accuracy=0.7), Constraint(leakage=0.3), Constraint(accuracy=0.95)):
        found = recommend(POINTS, wish)
        said = f"{found.sentence} {found.why}".lower()
        assert not any(word in said for word in ("private", "secure", "safe", "protects", "guarantee"))


def test_the_snippet_makes_the_job_that_was_tried() -> None:
    tree = {"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}}
    job = load_job(tree)
    options = defenses.options("laplace").model_validate({"name": "laplace", "epsilon": 0.25})
    assert tomllib.loads(snippet(Setting(options, 3), job)) == {"defense": {"name": "laplace", "epsilon": 0.25}}
    usual = defenses.options("laplace")(name="laplace")
    written = tomllib.loads(snippet(Setting(usual, 6), job))
    assert written["model"] == {"cut": 6}
    assert written["defense"]["epsilon"] == usual.epsilon  # type: ignore[attr-defined]
    assert load_job({**tree, "defense": written["defense"]}).defense == usual
