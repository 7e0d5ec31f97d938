"""Several searches: each with its own settings and weights, and the likeliest is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import Names

from veracausa.data.causal import load_causal
from veracausa.discovery.engines import centralized as checkpoint
from veracausa.discovery.engines.centralized import CentralizedVFedCD, Fit, Searches, likelier
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.options import Privacy
from veracausa.errors import InputError

DATA = load_causal("synthetic", attributes=5, edges=6, rows=90, seed=1)
SEVERAL: list[dict[str, Any]] = [{}, {"epochs": 3, "growth": 0.05}, {"acyclicity": "trace_exponential"}]
SHORT: dict[str, Any] = {"epochs": 4, "refit_epochs": 3, "searches": SEVERAL}


def fit_of(scores: list[float], search: int, apart: list[float] | None = None) -> Fit:
    count = len(scores)
    numbers = np.full(count, float(search))
    return Fit(
        strengths=np.full((count, 2, 2), search + 0.5),
        allowed=np.full((count, 2, 2), bool(search)),
        thresholds=numbers,
        held_out_loss=-numbers,
        score=np.array(scores),
        search=np.full(count, search),
        apart=-numbers if apart is None else np.array(apart),
    )


def test_each_replicate_keeps_its_own_likeliest_search_whole():
    each = Settings(searches=[{}, {"growth": 0.1}]).each
    kept = likelier(likelier(None, fit_of([1.0, 2.0, 3.0], 0), each), fit_of([2.0, 1.0, 3.0], 1), each)
    assert kept.search.tolist() == [0, 1, 0], "in doubt the earlier one"
    assert kept.score.tolist() == [1.0, 1.0, 3.0]
    assert kept.strengths[:, 0, 0].tolist() == [0.5, 1.5, 0.5]
    assert kept.allowed[:, 0, 0].tolist() == [False, True, False]
    assert kept.thresholds.tolist() == [0.0, 1.0, 0.0]


def test_two_likelihoods_are_compared_on_rows_kept_apart():
    each = (Settings(searches=[{}, {"growth": 0.1}], likelihood="auto").each)[1:]
    kept = likelier(fit_of([1.0, 1.0], 0, [5.0, 5.0]), fit_of([0.0, 2.0], 1, [6.0, 4.0]), each)
    assert kept.search.tolist() == [0, 1]
    assert kept.apart.tolist() == [5.0, 4.0]
    kept = likelier(kept, fit_of([9.0, 1.0], 2, [4.0, 4.5]), each)
    assert kept.search.tolist() == [2, 2], "of one likelihood, the rows that were trained on decide"


def test_what_a_search_does_not_name_is_as_in_the_settings():
    settings = Settings(growth=0.3, epochs=7, searches=[{}, {"epochs": 2}])
    assert [(one.epochs, one.acyclicity_growth, one.searches) for one in settings.each] == [(7, 0.3, ()), (2, 0.3, ())]
    alone = Settings(searches=[])
    assert alone.each == (alone,)
    assert "searches" not in alone.model_dump(), "settings from before there were several are still the same"
    assert len(Settings(searches=[{}, {}]).model_dump()["searches"]) == 2


def test_given_settings_hold_in_all_searches_of_a_profile():
    assert {one.epochs for one in Settings(epochs=5).each} == {5}
    assert {one.acyclicity for one in Settings(acyclicity="log_determinant").each} == {"log_determinant"}
    assert len(Settings(refit_epochs=0).each) == 1


def test_the_kept_search_has_the_least_loss_of_the_last_epochs():
    found = VFedCD(**SHORT).fit(DATA.values)
    settings = found.settings()
    ends = np.cumsum([one.epochs + one.refit_epochs for one in settings.each])
    assert [record["epoch"] for record in found.history_] == list(range(1, ends[-1] + 1))
    losses = [np.mean([record["loss"] for record in found.history_[end - settings.compared : end]]) for end in ends]
    assert found.search_ == np.argmin(losses)
    assert f"of 3 searches the one numbered {found.search_ + 1} was kept" in found.notes_
    first = VFedCD(**{**SHORT, "searches": SEVERAL[:1]}).fit(DATA.values)
    assert first.history_ == found.history_[: ends[0]], "a search knows nothing of those after it"


@pytest.mark.parametrize("epoch", [3, 7, 13])
def test_searches_that_are_stopped_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int):
    class Stopped(Exception):
        pass

    def stop(event):
        if round(event["share"] * 20) == epoch:
            raise Stopped

    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    whole = VFedCD(**SHORT).fit(DATA.values)
    assert len(whole.history_) == 20
    with pytest.raises(Stopped):
        VFedCD(**SHORT).fit(DATA.values, out=tmp_path, observer=stop)
    seen: list[Any] = []
    again = VFedCD(**SHORT).fit(DATA.values, out=tmp_path, resume=True, observer=seen.append)
    assert len(seen) == 20 - epoch
    assert np.array_equal(again.strengths_, whole.strengths_)
    assert (again.search_, again.threshold_, again.history_) == (whole.search_, whole.threshold_, whole.history_)


def test_a_search_that_time_cut_off_is_not_kept_beside_one_that_ended():
    rows = DATA.values[None]
    settings = Settings(**SHORT)
    epochs = iter(range(100))
    rng = np.random.default_rng(0)
    searches = Searches(settings, lambda one: CentralizedVFedCD(one, 5, rng))
    found = searches.fit(rows[:, :70], rows[:, 70:], time_is_up=lambda: next(epochs) > 8)
    assert len(found.history) < 14
    assert found.search.tolist() == [0]


def test_edges_that_are_known_hold_and_resamples_choose_for_themselves():
    must, never = [(0, 1)], [(2, 3), (3, 2)]
    found = VFedCD(**SHORT, required=must, forbidden=never, bootstrap=2).fit(DATA.values)
    for graph in (found.adjacency_matrix_, found.confidence_):
        assert graph[0, 1] == 1
        assert graph[2, 3] == graph[3, 2] == 0


def test_where_several_searches_can_not_be_had_is_said():
    columns = {"a": DATA.values[:, :2], "b": DATA.values[:, 2:]}
    plain: dict[str, Any] = {"epochs": 1, "refit_epochs": 1, "searches": SEVERAL, "width": 2}
    with pytest.raises(InputError, match=r"searches: the strong mode has one; set searches to \[\]"):
        run_federation(columns, DATA.names, Settings(**plain), strong=True)
    hidden = Settings(**plain, held_out=0.0, threshold=0.1)
    with pytest.raises(InputError, match=r"several searches by; set searches to \[\]"):
        run_federation(columns, DATA.names, hidden, privacy=Privacy(epsilon=10.0))
    with pytest.raises(InputError, check=Names("vfedcd", "searches", "200")):
        VFedCD(refit_epochs=0, searches=SEVERAL).settings()
    assert len(VFedCD(strong=True).settings().each) == len(VFedCD(epsilon=1.0).settings().each) == 1
