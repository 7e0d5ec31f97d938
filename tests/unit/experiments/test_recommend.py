"""One setting is recommended, or plainly none; never one that was not tried, and never in words that promise more."""

from __future__ import annotations

import tomllib

from veracausa.config import load_job
from veracausa.defenses import defenses
from veracausa.experiments.frontier.pareto import FrontierPoint
from veracausa.experiments.frontier.plan import Setting
from veracausa.experiments.frontier.recommend import Constraint, nothing_to_compare, recommend, snippet

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
    assert "No defense that was tried does better" in found.why


def test_an_area_is_no_share() -> None:
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
