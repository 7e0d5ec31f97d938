"""`MomentSearch`: what a fit leaves in one place and between parties, what it keeps to, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from refusals import Names

import veracausa
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.methods.moments.diagnostics import FEW
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.errors import InputError
from veracausa.testing import check_method

NAMES = ("age", "bmi", "dose", "crp")
PARTIES = {"clinic": ["age", "dose"], "lab": ["bmi", "crp"]}
FAST = {"starts": 1}
BETWEEN = {**FAST, "encryption": "none"}


def table(rows: int = 500, seed: int = 0) -> np.ndarray:
    """dose and bmi cause crp, age causes bmi: a collider that tells two of three directions."""
    values = np.random.default_rng(seed).normal(size=(rows, 4))
    values[:, 1] += 0.8 * values[:, 0]
    values[:, 3] += 0.9 * values[:, 1] - 1.1 * values[:, 2]
    return values * [12.0, 4.0, 0.5, 2.0] + [50.0, 25.0, 1.0, 3.0]


def frame(**more: Any) -> pl.DataFrame:
    return pl.DataFrame(table(**more), schema=list(NAMES))


def test_it_keeps_to_the_contract() -> None:
    check_method("moments")


def test_every_setting_is_a_parameter_once() -> None:
    params = MomentSearch().get_params()
    assert set(SumsSettings.model_fields) <= set(params)
    assert MomentSearch().settings() == SumsSettings()
    assert MomentSearch(penalty=2.0, receiver="all").settings() == SumsSettings(penalty=2.0, receiver="all")


@pytest.mark.parametrize("wrong", [{"penalty": -1}, {"starts": 0}, {"functions": 99}, {"receiver": "me"}])
def test_a_setting_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, check=Names(next(iter(wrong)))):
        MomentSearch(**wrong).fit(frame())


def test_what_a_fit_leaves() -> None:
    found = MomentSearch(**FAST).fit(frame())
    assert is_acyclic(found.adjacency_matrix_)
    assert (found.undirected_ == found.undirected_.T).all()
    assert {frozenset((e["cause"], e["effect"])) for e in found.edges_} == {
        frozenset(("age", "bmi")),
        frozenset(("bmi", "crp")),
        frozenset(("dose", "crp")),
    }
    assert found.model_ == "linear"
    assert "normal noise" in found.assumes_
    assert found.engine_ == "one place"
    assert found.sent_ == {}
    assert found.noise_ is None
    assert found.confidence_ is None
    assert found.explained_.shape == (4,)
    assert 0.5 < found.explained_[3] < 0.9
    assert found.announced_["bytes"] == 0


def test_effects_are_told_in_deviations_and_in_units() -> None:
    found = MomentSearch(**FAST, required=[("dose", "crp"), ("bmi", "crp")]).fit(frame(rows=4000))
    effects = {(row["cause"], row["effect"]): row for row in found.effects_}
    dose = effects["dose", "crp"]
    assert dose["shape"] == "falls"
    assert dose["slope_in_units"] == pytest.approx(-1.1 * 2.0 / 0.5, rel=0.1)
    assert dose["straight"] == pytest.approx(1.0, abs=0.05)
    assert effects["bmi", "crp"]["shape"] == "rises"
    assert dose["share"] == pytest.approx(found.strengths_[2, 3] ** 2)


def test_a_curve_that_falls_and_rises_bends() -> None:
    values = np.random.default_rng(1).normal(size=(800, 2))
    values[:, 1] = values[:, 0] ** 2 + 0.3 * values[:, 1]
    found = MomentSearch(**FAST).fit(pl.DataFrame(values, schema=["x", "y"]))
    assert [(row["cause"], row["effect"], row["shape"]) for row in found.effects_] == [("x", "y", "bends")]
    assert found.model_ == "additive"


def test_words_are_categories_and_have_no_slope() -> None:
    rng = np.random.default_rng(2)
    word = rng.integers(0, 3, 600)
    number = np.array([0.0, 2.0, -1.0])[word] + 0.5 * rng.normal(size=600)
    data = pl.DataFrame({"city": np.array(["Rome", "Bonn", "Oslo"])[word], "pay": number})
    found = MomentSearch(**FAST).fit(data)
    assert [row["shape"] for row in found.effects_] == ["categories"]
    assert found.effects_[0]["slope"] is None
    codes = MomentSearch(**FAST, nominal=["city"]).fit(data.with_columns(pl.Series("city", word)))
    assert [row["shape"] for row in codes.effects_] == ["categories"]
    with pytest.raises(InputError, check=Names("nominal", "town")):
        MomentSearch(nominal=["town"]).fit(data)


@pytest.mark.parametrize("parties", [None, PARTIES])
def test_tiers_and_edges_are_enforced(parties: dict[str, list[str]] | None) -> None:
    found = MomentSearch(**BETWEEN, tiers=[["crp"], ["bmi", "dose"]], required=[("crp", "age")]).fit(
        frame(), parties=parties
    )
    at = {name: place for place, name in enumerate(NAMES)}
    reach = np.linalg.matrix_power(np.eye(4) + found.adjacency_matrix_, 4) > 0
    assert not reach[at["bmi"], at["crp"]]
    assert not reach[at["dose"], at["crp"]]
    assert found.adjacency_matrix_[at["crp"], at["age"]]
    assert not found.undirected_[at["crp"], at["bmi"]], "a tier tells the direction"


def test_tiers_are_written_in_two_ways() -> None:
    lists = MomentSearch(**FAST, tiers=[["age"], ["crp"]]).fit(frame())
    numbers = MomentSearch(**FAST, tiers={"age": 1, "crp": 7}).fit(frame())
    assert np.array_equal(lists.adjacency_matrix_, numbers.adjacency_matrix_)


@pytest.mark.parametrize(
    ("known", "named"),
    [
        ({"tiers": [["age"], ["ag"]]}, ("tiers", "ag")),
        ({"tiers": [["age"], ["age"]]}, ("tiers", "age")),
        ({"tiers": ["age", "bmi"]}, ("tiers",)),
        ({"tiers": {"age": "first"}}, ("tiers", "age")),
        ({"tiers": [["age"], ["bmi"]], "required": [("bmi", "age")]}, ("bmi", "age")),
        ({"tiers": [["age"], ["bmi"]], "required": [("bmi", "crp"), ("crp", "age")]}, ("required",)),
        ({"required": [("age", "bmi")], "forbidden": [("age", "bmi")]}, ("age", "bmi")),
    ],
)
def test_what_contradicts_itself_is_refused(known: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(InputError, check=Names(*named)):
        MomentSearch(**known).fit(frame())


def test_between_parties_it_is_the_graph_of_one_place() -> None:
    here = MomentSearch(**FAST, functions=4).fit(frame())
    there = MomentSearch(**BETWEEN, functions=4).fit(frame(), parties=PARTIES)
    assert np.array_equal(
        here.adjacency_matrix_ | here.adjacency_matrix_.T, there.adjacency_matrix_ | there.adjacency_matrix_.T
    )
    assert np.array_equal(here.undirected_, there.undirected_)
    # Which end of an open edge is explained is not told, how much of it is.
    assert np.allclose(np.sort(here.explained_), np.sort(there.explained_), atol=2e-3)
    assert there.engine_ == "federated"
    assert set(there.sent_) == {"clinic", "lab", "validator"}
    assert all(row["slope_in_units"] is None for row in there.effects_), "nobody knows both columns' units"
    assert there.announced_["bytes"] == pytest.approx(sum(s["bytes_sent"] for s in there.sent_.values()), rel=0.3)


def test_who_saw_what_is_said() -> None:
    simulated = MomentSearch(**BETWEEN).fit(frame(), parties=PARTIES)
    assert any("simulation" in note for note in simulated.notes_)
    both = MomentSearch(**BETWEEN, receiver="all").fit(frame(), parties=PARTIES)
    assert set(both.sent_) == {"clinic", "lab"}
    told = MomentSearch(**FAST, encryption="bfv", functions=1).fit(frame(), parties=PARTIES)
    assert any("the validator opened sums" in note for note in told.notes_)


def test_noise_says_what_was_spent() -> None:
    found = MomentSearch(**BETWEEN, epsilon=4.0, delta=1e-6, functions=1).fit(frame(), parties=PARTIES)
    assert found.noise_ is not None
    assert found.noise_["epsilon"] == 4.0
    assert found.noise_["delta"] == 1e-6
    assert found.noise_["releases"] == 1
    with pytest.raises(InputError, check=Names("epsilon")):
        MomentSearch(epsilon=4.0).fit(frame())


@pytest.mark.parametrize("how", [{}, {"resampling": "sums"}])
def test_resamples_tell_how_sure_an_edge_is(how: dict[str, Any]) -> None:
    found = MomentSearch(**FAST, **how, bootstrap=6).fit(frame(rows=900))
    assert found.confidence_ is not None
    assert found.skeleton_confidence_ is not None
    assert (found.confidence_ + found.confidence_.T <= found.skeleton_confidence_ + 1e-12).all()
    assert found.skeleton_confidence_[1, 3] == 1.0
    assert found.confidence_[2, 3] > found.confidence_[3, 2]
    assert found.skeleton_confidence_[0, 2] < 0.5


def test_gaps_stay_gaps() -> None:
    values = table(rows=900)
    values[np.random.default_rng(3).random(values.shape) < 0.1] = np.nan
    data = pl.DataFrame(values, schema=list(NAMES))
    for parties in (None, PARTIES):
        found = MomentSearch(**BETWEEN).fit(data, parties=parties)
        skeleton = {frozenset((row["cause"], row["effect"])) for row in found.edges_}
        assert skeleton == {frozenset(pair) for pair in (("age", "bmi"), ("bmi", "crp"), ("dose", "crp"))}
        assert any("missing" in note for note in found.notes_)


def test_a_constant_column_stays_without_edges() -> None:
    data = frame().with_columns(pl.lit(1.0).alias("same"))
    for parties in (None, {**PARTIES, "lab": [*PARTIES["lab"], "same"]}):
        found = MomentSearch(**BETWEEN).fit(data, parties=parties)
        assert not found.adjacency_matrix_[4].any()
        assert not found.adjacency_matrix_[:, 4].any()
        assert any(note.startswith("same") and "constant" in note for note in found.notes_)


def test_more_columns_than_rows_are_said_to_be_too_many() -> None:
    found = MomentSearch(**FAST).fit(np.random.default_rng(4).normal(size=(12, 14)))
    assert any("14 columns for 12 rows" in warning for warning in found.warnings_)
    with pytest.raises(InputError, check=Names("12", "allow_small_n")):
        MomentSearch(**BETWEEN).fit(
            np.random.default_rng(4).normal(size=(12, 14)), parties={"a": range(7), "b": range(7, 14)}
        )


def test_a_copy_of_a_column_is_said_to_be_one() -> None:
    data = frame().with_columns((2 * pl.col("age")).alias("twice"))
    for parties in (None, {**PARTIES, "clinic": [*PARTIES["clinic"], "twice"]}):
        found = MomentSearch(**BETWEEN).fit(data, parties=parties)
        assert any("twice" in warning for warning in found.warnings_)


def test_little_explained_and_hidden_causes_are_warned_of() -> None:
    rng = np.random.default_rng(5)
    weak = rng.normal(size=(4000, 2))
    weak[:, 1] += 0.25 * weak[:, 0]
    found = MomentSearch(**FAST).fit(pl.DataFrame(weak, schema=["x", "y"]))
    assert any("explain less" in warning for warning in found.warnings_)
    assert MomentSearch(**FAST).fit(frame()).warnings_ == ()


def test_few_rows_are_noted() -> None:
    assert any("few" in note for note in MomentSearch(**FAST).fit(frame(rows=FEW - 1)).notes_)
    assert not any("few" in note for note in MomentSearch(**FAST).fit(frame(rows=FEW)).notes_)


def test_a_threshold_cuts_weak_edges_but_no_required_ones() -> None:
    weakest, least, _ = np.sort([row["strength"] for row in MomentSearch(**FAST).fit(frame()).edges_])
    strong = MomentSearch(**FAST, threshold=(weakest + least) / 2).fit(frame())
    assert [row["strength"] > weakest for row in strong.edges_] == [True, True]
    kept = MomentSearch(**FAST, threshold=0.99, required=[("age", "bmi")]).fit(frame())
    assert [(row["cause"], row["effect"]) for row in kept.edges_] == [("age", "bmi")]


def test_engines_that_can_not_be_are_refused() -> None:
    with pytest.raises(InputError, check=Names("engine")):
        MomentSearch(engine="federated").fit(frame())
    with pytest.raises(InputError, check=Names("time_limit")):
        MomentSearch(**BETWEEN, receiver="all", time_limit=5).fit(frame(), parties=PARTIES)
    for other in ({"missing": "median"}, {"constant": "refuse"}, {"collinear": "drop"}):
        with pytest.raises(InputError, check=Names(*other)):
            MomentSearch(**BETWEEN, **other).fit(frame(), parties=PARTIES)
    here = MomentSearch(**FAST, engine="one place").fit(frame(), parties=PARTIES)
    assert here.sent_ == {}
    assert {row["cause_party"] for row in here.edges_} <= {"clinic", "lab"}


def test_a_run_has_a_status_and_its_cost_beforehand(tmp_path: Path) -> None:
    heard: list[Any] = []
    seen: list[dict[str, Any]] = []

    def observer(event: Any) -> None:
        heard.append(event)
        if event["event"] == "progress":
            seen.append(json.loads((tmp_path / "run" / "status.json").read_text(encoding="utf-8")))

    run = veracausa.discover(
        frame(), PARTIES, method="moments", out=tmp_path / "run", observer=observer, tiers=[["age"], ["crp"]], **BETWEEN
    )
    order = [event["event"] for event in heard]
    assert order.index("announced") < order.index("progress")
    assert {event["what"] for event in heard if event["event"] == "progress"} == {"sums", "search"}
    assert {status.get("what") for status in seen} & {"sums", "search"}
    assert run.status["state"] == "done"
    assert run.summary["engine"] == "federated"
    again = veracausa.DiscoveryRun(run.path).job
    assert again.settings["tiers"] == [["age"], ["crp"]]
    ledger = (run.path / "federation" / "parties" / "lab" / "ledger.jsonl").read_text(encoding="utf-8")
    assert "moment_share" in ledger
