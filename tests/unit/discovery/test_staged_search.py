"""Searches whose orders and settings held-out rows choose, in one place, and a search that starts from a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import Names

from veracausa.data.causal import load_causal
from veracausa.discovery.engines import centralized as checkpoint
from veracausa.discovery.engines import staged
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.engines.staged import StagedSearch
from veracausa.discovery.engines.sums.words import FEATURES
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.methods import auto
from veracausa.discovery.methods.vfedcd.decoders import Decoders
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.residuals import MOST, density_losses, uneven_effects
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.start import moments_graph
from veracausa.errors import InputError
from veracausa.experiments.discovery_cell import DiscoveryCell, GraphTable
from veracausa.experiments.replicates import side_by_side

DATA = load_causal("synthetic", attributes=5, edges=6, rows=120, seed=1)
REFITS: list[dict[str, Any]] = [{"sparsity_weight": 0.05}, {"width": 12}, {"refit_noisy_rate": 3}]
SHORT: dict[str, Any] = {"epochs": 4, "refit_epochs": 3, "searches": [{}, {"noisy_rate": 4}], "refits": REFITS}
SMALL: dict[str, Any] = {"name": "synthetic", "attributes": 4, "edges": 4, "rows": 200}
PARTIES = {"a": ["x0", "x1"], "b": ["x2", "x3", "x4"]}


class Stopped(Exception):
    pass


def chain(order: list[int]) -> np.ndarray:
    graph = np.zeros((len(order), len(order)), dtype=bool)
    graph[order[:-1], order[1:]] = True
    return graph


def test_attributes_of_much_noise_learn_faster_and_the_others_as_before():
    rng = np.random.default_rng(0)
    features, target = rng.normal(size=(1, 3, 8, 4)), rng.normal(size=(1, 3, 8))
    target[:, 2] = target[:, 2] > 0
    moved = {}
    for rate in (1.0, 5.0):
        made = np.random.default_rng(1)
        decoders = Decoders(1, 3, 4, 1, "tanh", np.array([False, False, True]), "gaussian", made)
        decoders.values["log_variance"][0, :, 0, 0] = [0.0, 2 * np.log(0.1), 0.0]
        decoders.noisy_rate = rate
        before = decoders.values["weight_0"].copy()
        back = decoders.step(features, target, 0.01).features
        moved[rate] = (decoders.values["weight_0"] - before)[0], back[0]
    for one, other in zip(moved[1.0], moved[5.0], strict=True):
        assert other[0] == pytest.approx(5 * one[0])
        assert np.array_equal(other[1], one[1]), "nobody learns more slowly than the rate says"
        assert np.array_equal(other[2], one[2]), "a chance has no noise of its own"


def test_hidden_units_beyond_a_width_never_say_anything():
    settings = Settings(epochs=2, refit_epochs=2, width=6, searches=[])
    model = CentralizedVFedCD(settings, 5, np.random.default_rng(0), replicates=2)
    model.keep_narrow(np.array([6, 4]))
    rows = np.stack([DATA.values[:100]] * 2)
    model.fit(rows, np.stack([DATA.values[100:]] * 2))
    weights, readout = model.weights, model.decoders.values["readout"]
    assert not weights[1, ..., 4:].any()
    assert not readout[1, :, 4:].any()
    assert weights[0, ..., 4:].any()
    assert weights[1, ..., :4].any()


def test_the_density_knows_the_form_of_the_noise():
    rng = np.random.default_rng(0)
    normal, skewed = rng.normal(size=(2, 4000)), rng.exponential(size=(2, 4000)) - 1
    entropy = 0.5 * np.log(2 * np.pi * np.e)
    assert density_losses(normal[0], normal[1]).mean() == pytest.approx(entropy, abs=0.05)
    # Of the same variance, and of 1 nat in truth: a normal density would say as much of both.
    assert density_losses(skewed[0], skewed[1]).mean() < entropy - 0.2
    assert np.isfinite(density_losses(normal[0], np.array([1e6]))).all()


@pytest.mark.parametrize(("uneven", "told"), [(0.0, False), (1.0, True)])
def test_uneven_noise_is_told_from_added_noise(uneven: float, told: bool):
    said = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(1000, 5))
        graph = np.zeros((5, 5), dtype=bool)
        graph[0, 1:] = True
        residuals = rng.normal(size=(1000, 5)) * np.exp(0.5 * uneven * rows[:, :1])
        found = uneven_effects(residuals, rows, graph, np.ones(5, dtype=bool))
        assert not found[0], "it has no cause"
        said.append(found.sum() >= MOST * 4)
    assert all(said) if told else not any(said)


@pytest.mark.parametrize(("generator", "taken"), [("gp_additive", False), ("heteroscedastic", True)])
def test_held_out_rows_have_the_last_word_on_uneven_noise(generator: str, taken: bool, monkeypatch: pytest.MonkeyPatch):
    # What networks fit badly looks uneven, too: here the test says so of every effect.
    monkeypatch.setattr(staged, "uneven_effects", lambda residuals, rows, graph, judged: graph.any(axis=0) & judged)
    rows = load_causal("suite", generator=generator, attributes=4, edges=4, rows=400, seed=1).values[None]
    settings = Settings(
        epochs=40,
        refit_epochs=40,
        searches=[],
        refits=[{"sparsity_weight": 0.03}],
        refit_noisy_rate=5,
        likelihood="tested",
    )

    def make(one: Settings, copies: int = 1) -> CentralizedVFedCD:
        return CentralizedVFedCD(one, 4, np.random.default_rng(0), replicates=copies)

    model = StagedSearch(settings, make)
    found = model.fit(rows[:, :320], rows[:, 320:])
    assert model.even is not None
    gain = (model.even_loss - model.loss)[0]
    assert (gain.mean() > gain.std() / np.sqrt(80)) == taken
    assert list(model.uneven) == [taken]
    assert np.array_equal(found.strengths, model.even.strengths) != taken
    assert model.counted[0, 0] == model.counted[0, 1] > 0
    assert ("do not bear uneven noise out" in model.notes()[-1]) != taken


def test_same_seed_same_bits_and_every_stage_is_trained():
    one, other = (VFedCD(profile="general", **SHORT).fit(DATA.values) for _ in range(2))
    assert np.array_equal(one.strengths_, other.strengths_)
    assert [record["epoch"] for record in one.history_][:14] == list(range(1, 15))
    assert any(note.startswith("held-out rows chose the order") for note in one.notes_)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7, 0.9])
def test_a_stopped_fit_goes_on(tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    settings = SHORT | {"likelihood": "tested", "start": "moments"}
    whole = VFedCD(**settings).fit(DATA.values)

    def stop(event: dict[str, Any]) -> None:
        if event["share"] >= share:
            raise Stopped

    with pytest.raises(Stopped):
        VFedCD(**settings).fit(DATA.values, out=tmp_path, observer=stop)
    again = VFedCD(**settings).fit(DATA.values, out=tmp_path, resume=True)
    assert np.array_equal(again.strengths_, whole.strengths_)
    assert again.history_ == whole.history_
    assert again.notes_ == whole.notes_


def test_the_order_of_a_graph_to_start_from_is_one_of_those_compared():
    rows = DATA.values[None]
    settings = Settings(**{**SHORT, "epochs": 1, "searches": []})
    start = chain([4, 3, 2, 1, 0])

    def make(one: Settings, copies: int = 1) -> CentralizedVFedCD:
        return CentralizedVFedCD(one, 5, np.random.default_rng(0), replicates=copies)

    staged = StagedSearch(settings, make, start)
    staged.fit(rows[:, :100], rows[:, 100:])
    assert len(staged.orders) == 2
    assert np.array_equal(staged.orders[0][0], np.tri(5, k=-1, dtype=bool))
    assert staged.order is not None
    assert any(np.array_equal(staged.order, order) for order in staged.orders)


@pytest.mark.parametrize("stands", [False, True])
def test_the_order_of_lines_is_not_compared(stands: bool, monkeypatch: pytest.MonkeyPatch):
    rows = DATA.values[None]
    settings = Settings(**{**SHORT, "epochs": 1, "searches": []})

    def make(one: Settings, copies: int = 1) -> CentralizedVFedCD:
        return CentralizedVFedCD(one, 5, np.random.default_rng(0), replicates=copies)

    def last_is_best(self: CentralizedVFedCD, train: np.ndarray, rows: np.ndarray, graphs: np.ndarray) -> np.ndarray:
        return np.repeat(-np.arange(len(graphs))[:, None], rows.shape[1], axis=1) + 0.0

    monkeypatch.setattr(CentralizedVFedCD, "loss_of_any_noise", last_is_best)
    model = StagedSearch(settings, make, chain([4, 3, 2, 1, 0]), np.array([stands]))
    found = model.fit(rows[:, :100], rows[:, 100:])
    assert found.search[0] == (-1 if stands else 0)
    assert model.order is not None
    assert np.array_equal(model.order[0], np.tri(5, k=-1, dtype=bool)) == stands


@pytest.mark.parametrize(("generator", "lines"), [("linear", True), ("sines", False)])
def test_moments_say_whether_they_take_a_table_for_lines(generator: str, lines: bool):
    data = load_causal("suite", generator=generator, attributes=5, edges=5, rows=500, seed=1)
    graph, straight = moments_graph(data.values, data.names, seed=0)
    assert is_acyclic(graph)
    assert straight == lines


def test_resamples_are_made_the_same_way():
    fitted = VFedCD(**SHORT, bootstrap=2).fit(DATA.values)
    assert fitted.confidence_ is not None
    assert set(np.unique(fitted.confidence_)) <= {0.0, 0.5, 1.0}


def test_between_parties_the_only_search_follows_a_graph_that_is_given():
    data = load_causal("synthetic", attributes=5, edges=6, rows=90, seed=1)
    settings = {"epochs": 2, "refit_epochs": 2, "start": "moments", "refit_noisy_rate": 5, "threshold": 0.0}
    for order in ([4, 3, 2, 1, 0], [0, 2, 4, 1, 3]):
        method = VFedCD(**settings, searches=[{}, {"epochs": 3}]).fit(data, parties=PARTIES, start_graph=chain(order))
        assert len(method.history_) == 4, "one search"
        found = method.adjacency_matrix_[np.ix_(order, order)]
        assert not np.tril(found).any()
        assert found.any()


@pytest.mark.parametrize(
    ("settings", "parties", "said"),
    [
        ({"likelihood": "tested", "refits": []}, None, "likelihood|tested judges the refits"),
        ({"refits": REFITS, "refit_epochs": 0, "threshold": 0.1}, None, "refits: held-out rows compare them"),
        ({"start": "moments"}, PARTIES, "start: between parties it takes a graph"),
        ({"likelihood": "tested", "refits": REFITS}, PARTIES, "in one place only"),
        ({"strong": True, "refit_noisy_rate": 5}, PARTIES, "strong mode has one rate"),
    ],
)
def test_what_can_not_be_is_refused(settings: dict[str, Any], parties: Any, said: str):
    with pytest.raises(InputError, match=said):
        VFedCD(**settings).fit(load_causal("synthetic", attributes=5, edges=6, rows=90, seed=1), parties=parties)


def test_auto_starts_networks_between_parties_from_its_sums(monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []

    class Quick(VFedCD):
        def fit(self, X: Any, y: Any = None, **given: Any) -> Any:
            seen.append(given["start_graph"])
            self.set_params(epochs=2, refit_epochs=2)
            return super().fit(X, y, **given)

    monkeypatch.setattr(auto, "VFedCD", Quick)
    data = load_causal("synthetic", attributes=4, edges=4, rows=400, seed=1)
    method = auto.AutoDiscovery(networks=True, encryption="none", starts=1)
    method.fit(data, parties={"a": ["x0", "x1"], "b": ["x2", "x3"]})
    assert np.array_equal(seen[0], method.adjacency_matrix_)
    assert [one["method"] for one in method.compared_] == ["moments", "vfedcd"]
    sent = sum(member["bytes_sent"] for member in method.sent_.values())
    assert sent == sum(one["bytes_sent"] for one in method.compared_), "bytes of both are told"
    assert method.compared_[1]["bytes_sent"] > 0
    assert FEATURES in method.notes_
    assert not any("nothing of a single row" in note for note in method.notes_)
    found = np.zeros((4, 4), dtype=bool)
    for cause, effect in method.compared_[1]["edge_list"]:
        found[int(cause[1]), int(effect[1])] = True
    assert is_acyclic(found | seen[0]), "the order of the networks is one of the sums' graph"


@pytest.mark.parametrize(("settings", "named"), [({"epsilon": 4.0}, "epsilon"), ({"receiver": "all"}, "receiver")])
def test_networks_between_parties_are_refused_beside_what_they_would_undo(settings: dict[str, Any], named: str):
    data = load_causal("synthetic", attributes=4, edges=4, rows=400, seed=1)
    with pytest.raises(InputError, match="networks: between parties", check=Names(named)):
        auto.AutoDiscovery(networks=True, **settings).fit(data, parties={"a": ["x0", "x1"], "b": ["x2", "x3"]})


def test_experiments_start_each_graph_from_its_own_moments(monkeypatch: pytest.MonkeyPatch):
    settings = {"epochs": 2, "refit_epochs": 2, "profile": "general"}
    cell = DiscoveryCell(SMALL, "seed", 2, "vfedcd", settings, None, graphs=(1, 2), seeds=(0,))
    seen: list[np.ndarray] = []
    before = StagedSearch.__init__

    def watched(self: StagedSearch, settings: Settings, make: Any, start: Any = None, stands: Any = None) -> None:
        seen.append(start)
        assert stands.shape == (2,)
        before(self, settings, make, start, stands)

    monkeypatch.setattr(StagedSearch, "__init__", watched)
    tables = [GraphTable(at, load_causal(**SMALL, seed=at), (0, 0, 1, 1)) for at in (1, 2)]
    found = side_by_side(cell, [(table, 0) for table in tables]) or []
    assert len(found) == 2
    assert all(0 <= one.scores["uneven_effects"] <= one.scores["tested_effects"] for one in found)
    assert seen[0].shape == (2, 4, 4)
    assert not np.array_equal(seen[0][0], seen[0][1])
