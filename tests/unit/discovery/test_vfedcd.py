"""VFedCD as an estimator: what it finds, what it keeps to, and what it refuses."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

import veracausa
from veracausa.data.causal import load_causal
from veracausa.discovery.methods.vfedcd.diagnostics import TWO_VALUES
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import FOLDER, GROUPS, RENAMED, Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError
from veracausa.registry import read_profile

pytestmark = pytest.mark.xdist_group("vfedcd")  # what its tests share is made once, not once a worker

QUICK = {"epochs": 30, "refit_epochs": 20, "acyclicity": "spectral", "searches": []}
DATA = load_causal("synthetic", attributes=5, edges=5, rows=300, seed=4)
FRAME = pl.DataFrame(DATA.values, schema=list(DATA.names))
FEW = FRAME.head(60)
PARTIES = {"hospital": ["x0", "x2"], "lab": ["x4", "x1", "x3"]}


@pytest.fixture(scope="module")
def fitted() -> VFedCD:
    return VFedCD(**QUICK, bootstrap=4, engine="floating", reveal="own").fit(FRAME, parties=PARTIES)


def test_it_is_exported() -> None:
    assert veracausa.VFedCD is VFedCD


def test_every_setting_is_in_one_group_and_defaults_to_the_profile() -> None:
    own = [name for group in GROUPS.values() for name in group.model_fields]
    assert sorted([*own, "profile", "threshold"]) == sorted(Settings.model_fields)
    assert all(VFedCD().get_params()[group] is None for group in GROUPS)
    grouped = VFedCD(model={"width": 3}, search={"epochs": 7}, protection={"reveal": "own"})
    flat = VFedCD(width=3, epochs=7, reveal="own")
    assert flat.get_params() == grouped.get_params()
    assert clone(flat).settings() == grouped.settings() == flat.set_params(epochs=7).settings()
    assert (flat.width, flat.depth) == (3, 1)
    flat.width = 4
    assert (flat.width, flat.settings().width, flat.get_params()["model"]) == (4, 4, {"width": 4})
    with pytest.raises(InputError, match=r"search\.epohs: no such setting; did you mean 'epochs'"):
        VFedCD(search={"epohs": 3}).settings()
    with pytest.raises(TypeError, match="epohs"):
        VFedCD(epohs=3)


def test_names_of_earlier_versions_are_understood_and_noted() -> None:
    for old, new in RENAMED.items():
        assert new in Settings.model_fields, old
    value = VFedCD(growth=0.5, epochs=1, refit_epochs=0, searches=[{"halt": 0.2}])
    assert value.settings().acyclicity_growth == 0.5
    assert value.settings().searches[0].cycle_tolerance == 0.2
    noted = VFedCD(growth=0.5, search={"rate": 0.02, "epochs": 1, "refit_epochs": 0}).fit(FEW).notes_
    assert noted[:2] == (
        "setting growth is called acyclicity_growth now",
        "setting rate is called learning_rate now",
    )


def test_what_a_resume_compares_is_spelled_as_ever() -> None:
    written = Settings(searches=[{"acyclicity_growth": 0.1}]).recorded()
    assert list(written)[6:13] == ["rate", "batch", "epochs", "refit_epochs", "growth", "ceiling", "halt"]
    assert list(written)[-4:] == ["open_parts", "bottleneck", "row_noise", "searches"]
    assert written["searches"] == [{"growth": 0.1}]
    assert Settings(encryption="bfv", strong=True).recorded() == Settings().recorded()


@pytest.mark.parametrize("profile", ["literal", "paper_repaired"])
def test_settings_of_the_paper(profile: str) -> None:
    told = VFedCD(profile=profile, width=3).settings()
    assert told.width == 3
    assert told.threshold == read_profile(FOLDER, profile)["threshold"]


def test_the_profile_literal_is_what_the_paper_prints() -> None:
    told = Settings(profile="literal")
    printed = {"epochs": 500, "batch": 16, "learning_rate": 0.01, "acyclicity_growth": 0.006, "width": 10}
    printed |= {"acyclicity": "spectral", "sparsity": "group_lasso", "sparsity_weight": 0.005, "local_steps": 1}
    assert {name: getattr(told, name) for name in printed} == printed
    assert told.depth > 0, "a deep decoder"
    assert not told.searches
    assert not told.refit_epochs


def test_the_profile_that_was_called_paper_is_understood_and_noted() -> None:
    now, before = Settings(profile="paper_repaired"), Settings(profile="paper")
    assert now == before
    assert before.profile == "paper_repaired"
    assert before.recorded()["profile"] == "paper", "checkpoints and cells keep the name of then"
    old = VFedCD(profile="paper", epochs=1)
    assert clone(old).profile == "paper"
    assert old.job_settings()["profile"] == "paper_repaired"
    assert old.fit(FEW).notes_[0].startswith("profile paper is called paper_repaired now")
    assert not any("profile" in note for note in VFedCD(profile="literal", epochs=1).fit(FEW).notes_)


def test_it_clones_with_its_parameters() -> None:
    method = VFedCD(epochs=3, threshold="mixture", bootstrap=2, required=[("x0", "x1")])
    assert clone(method).get_params() == method.get_params()


def test_it_finds_most_of_a_small_graph(fitted: VFedCD) -> None:
    assert fitted.score(DATA.truth, "skeleton_f1") > 0.75
    assert fitted.score(DATA.truth) < 5, "no better than an empty graph"
    assert nx.is_directed_acyclic_graph(fitted.causal_graph_)
    assert len(fitted.history_) == 50


def test_frames_and_arrays_give_the_same_bits() -> None:
    method = VFedCD(epochs=2, refit_epochs=1)
    strengths = [clone(method).fit(form).strengths_ for form in (DATA.values, FRAME)]
    assert np.array_equal(strengths[0], strengths[1])
    assert not np.array_equal(strengths[0], clone(method).set_params(seed=1).fit(FRAME).strengths_)


def test_pandas_frames_give_the_same_bits() -> None:
    pandas = pytest.importorskip("pandas")
    method = VFedCD(epochs=2, refit_epochs=1)
    frame = pandas.DataFrame(DATA.values, columns=list(DATA.names))
    assert np.array_equal(clone(method).fit(frame).strengths_, method.fit(FRAME).strengths_)


def test_edges_say_whose_they_are_and_how_sure(fitted: VFedCD) -> None:
    assert len(fitted.edges_) == int(fitted.adjacency_matrix_.sum())
    strengths = [edge["strength"] for edge in fitted.edges_]
    assert strengths == sorted(strengths, reverse=True)
    assert min(strengths) >= fitted.threshold_
    for edge in fitted.edges_:
        assert edge["cause"] in PARTIES[edge["cause_party"]]
        assert edge["effect"] in PARTIES[edge["effect_party"]]
        assert edge["confidence"] in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert fitted.causal_graph_.edges[edge["cause"], edge["effect"]]["confidence"] == edge["confidence"]
    assert fitted.confidence_ is not None
    strongest = np.unravel_index(fitted.strengths_.argmax(), (5, 5))
    assert fitted.confidence_[strongest] + fitted.confidence_.T[strongest] == 1
    assert fitted.causal_graph_.nodes["x4"]["party"] == "lab"


def test_a_party_is_told_what_touches_its_own(fitted: VFedCD) -> None:
    for party, told in fitted.party_edges_.items():
        touching = [e for e in fitted.edges_ if e["cause"] in PARTIES[party] or e["effect"] in PARTIES[party]]
        assert told == touching
    assert any(len(told) < len(fitted.edges_) for told in fitted.party_edges_.values())


def test_what_is_not_protected_is_said(fitted: VFedCD) -> None:
    assert any("all columns were in one place" in note for note in fitted.notes_)


def test_required_and_forbidden_edges_are_kept_in_training() -> None:
    truth = [(DATA.names[i], DATA.names[j]) for i, j in np.argwhere(DATA.truth)]
    required = [(effect, cause) for cause, effect in truth[:1]]
    method = VFedCD(epochs=4, refit_epochs=2, bootstrap=3, required=required, forbidden=truth[1:2]).fit(FRAME)
    graph = method.causal_graph_
    assert graph.has_edge(*required[0])
    assert not graph.has_edge(*truth[1])
    must, never = ((DATA.names.index(a), DATA.names.index(b)) for a, b in (required[0], truth[1]))
    assert method.strengths_[never] == 0
    assert method.confidence_ is not None
    assert method.confidence_[must] == 1
    assert method.confidence_[never] == 0


def test_the_likelihood_is_that_of_rows_kept_apart() -> None:
    noise = np.random.default_rng(0).normal(3, 2, (2000, 4))
    method = VFedCD(epochs=6, refit_epochs=4).fit(noise)
    # Standardised independent normal columns: the entropy of each is ½ log 2πe.
    assert method.held_out_log_likelihood_ == pytest.approx(-4 * 0.5 * math.log(2 * math.pi * math.e), abs=0.25)
    assert math.isnan(VFedCD(epochs=1, refit_epochs=0, held_out=0, threshold=0.1).fit(noise).held_out_log_likelihood_)


def test_columns_with_two_values_are_probabilities() -> None:
    table = DATA.values.copy()
    table[:, 0] = np.where(table[:, 0] > 0, 7, 3)
    method = VFedCD(epochs=5, refit_epochs=2).fit(table)
    assert "x0: two values, fitted as probabilities" in method.notes_
    assert TWO_VALUES in method.warnings_
    assert math.isfinite(method.held_out_log_likelihood_)
    as_number = VFedCD(epochs=1, refit_epochs=0, bernoulli=False).fit(table)
    assert "x0: two values, fitted as numbers" in as_number.notes_
    assert TWO_VALUES not in as_number.warnings_


def test_what_was_done_to_columns_is_said() -> None:
    table = DATA.values.copy()
    table[:, 0], table[3, 1] = 1.0, np.nan
    method = VFedCD(epochs=2, refit_epochs=0, required=[("x0", "x1")]).fit(table[:150])
    assert method.notes_[:2] == (
        "x1: 1 missing values set to the median",
        "x0: constant, takes no part and stays without edges",
    )
    assert method.notes_[2].startswith("150 rows are few")
    # What is required stays required, even of a column that tells nothing.
    assert method.adjacency_matrix_[0].tolist() == [False, True, False, False, False]


def test_parties_by_position_and_progress() -> None:
    shares: list[float] = []
    method = VFedCD(epochs=1, refit_epochs=1, searches=[{}, {"growth": 0.1}], engine="floating", bootstrap=2)
    method.fit(DATA.values, parties={"a": [0, 1], "b": [2, 3, 4]}, observer=lambda event: shares.append(event["share"]))
    assert method.parties_ == {"a": ("x0", "x1"), "b": ("x2", "x3", "x4")}
    assert shares == [0.25, 0.5, 0.75, 1.0] * 2


def test_a_time_limit_ends_a_fit() -> None:
    assert len(VFedCD(time_limit=0.0).fit(FRAME).history_) == 1


@pytest.mark.parametrize(
    ("settings", "parties", "said"),
    [
        ({"width": 0}, None, "vfedcd: width: must be at least 1"),
        ({"profile": "literl"}, None, "did you mean 'literal'"),
        ({"threshold": "best"}, None, "vfedcd: threshold"),
        ({"required": [("x0", "x1")], "forbidden": [("x0", "x1")]}, None, "x0 -> x1 is required and forbidden"),
        (
            {"required": [("x0", "x1"), ("x1", "x2"), ("x2", "x0"), ("x4", "x0")]},
            None,
            "x0 -> x1 -> x2 -> x0 is a cycle",
        ),
        ({"required": [("x0", "age")]}, None, "no column 'age'"),
        ({}, {"a": ["x0", "x1"], "b": ["x1", "x2", "x3", "x4"]}, "column 'x1' is named by 'a' and 'b'"),
        ({}, {"a": ["x0", "x1"], "b": ["x2"]}, "columns 'x3', 'x4' belong to no party"),
        ({}, {"a": ["x0", "x1"], "b": []}, "'b' needs a list of columns"),
        ({}, {"../a": ["x0"]}, "is no name for a party"),
        ({"engine": "federated"}, None, "two parties or more"),
        ({"time_limit": 1.0}, PARTIES, "time_limit"),
        ({"encryption": "bfv"}, None, "encryption: 'bfv' hides what parties send"),
        ({"encryption": "bfv", "engine": "floating"}, PARTIES, "in one place nobody sends anything"),
        ({"reveal": "some"}, None, "reveal"),
        ({"bootstrap": -1}, None, "bootstrap: -1"),
        ({"missing": "refuse"}, None, None),
    ],
)
def test_what_can_not_be_is_refused(settings: dict, parties: dict | None, said: str | None) -> None:
    method = VFedCD(**({"epochs": 1, "refit_epochs": 0} | settings))
    if said is None:
        method.fit(FRAME, parties=parties)
        return
    with pytest.raises(InputError, match=said):
        method.fit(FRAME, parties=parties)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="2 rows are too few"):
        VFedCD().fit(DATA.values[:2])


def test_a_federated_fit_does_not_depend_on_where_columns_stand() -> None:
    method = VFedCD(epochs=2, refit_epochs=1, searches=[])
    mixed = clone(method).fit(FEW, parties=PARTIES)
    assert mixed.engine_ == "federated"
    assert any("nothing in them was encrypted" in note for note in mixed.notes_)
    assert set(mixed.sent_) == {"hospital", "lab", "validator"}
    assert mixed.sent_["lab"]["bytes_sent"] > 1000 < mixed.sent_["lab"]["messages"] * 1000
    order = [name for columns in PARTIES.values() for name in columns]
    sorted_ = clone(method).fit(FEW.select(order), parties=PARTIES)
    at = [DATA.names.index(name) for name in order]
    assert np.array_equal(mixed.strengths_[np.ix_(at, at)], sorted_.strengths_)
    assert math.isfinite(mixed.held_out_log_likelihood_)


def test_where_columns_are_encrypted_resamples_are_federated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def pretend(columns, names, settings, **how):
        seen.append(settings.encryption)
        square = (len(names), len(names))
        return DiscoveryResult(tuple(names), np.zeros(square), np.ones(square, dtype=bool), 0.1, 0.0)

    monkeypatch.setattr("veracausa.discovery.engines.launch.run_federation", pretend)
    VFedCD(epochs=1, refit_epochs=0, bootstrap=2, encryption="bfv").fit(FEW, parties=PARTIES)
    assert seen == ["bfv"] * 3


def test_bootstraps_are_federated_when_asked_for() -> None:
    quick = {"epochs": 1, "refit_epochs": 0, "bootstrap": 2}
    asked = VFedCD(**quick, engine="federated").fit(FEW, parties=PARTIES)
    assert not any("resamples" in note for note in asked.notes_)
    not_asked = VFedCD(**quick).fit(FEW, parties=PARTIES)
    assert any("resamples were trained with all columns in one place" in note for note in not_asked.notes_)
    for method in (asked, not_asked):
        assert method.confidence_ is not None
        assert set(np.unique(method.confidence_)) <= {0.0, 0.5, 1.0}
