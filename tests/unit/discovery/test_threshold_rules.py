"""Which strength is worth an edge, and that asking rows kept apart opens each of them once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veracausa.discovery.federated.holder import Holder
from veracausa.discovery.federated.run import discover
from veracausa.discovery.settings import Settings
from veracausa.discovery.threshold import TYPICAL, weakest_first, worth_threshold
from veracausa.errors import RunError

D = 6


def strengths(seed: int = 0) -> np.ndarray:
    return np.triu(np.random.default_rng(seed).uniform(0.1, 2.0, (D, D)), 1)


@given(st.integers(0, 50), st.integers(2, 30))
def test_edges_end_weakest_first_from_none_to_all(seed: int, count: int) -> None:
    b = strengths(seed)
    tried = np.triu(np.random.default_rng(seed + 1).random((D, D)) < 0.5, 1)
    kept, ended = weakest_first(b, tried, count)
    assert (kept[0] == tried).all()
    assert not kept[-1].any()
    assert len(kept) <= count + 1
    for before, after in itertools.pairwise(kept):
        gone = before & ~after
        assert gone.any()
        assert not (after & ~before).any()
        assert b[gone].max() <= b[after].min(initial=np.inf)
    assert ended == pytest.approx([(b[tried & ~mask] ** 3).sum() for mask in kept])


def test_an_edge_is_worth_its_place_where_the_fitted_loss_says_so() -> None:
    _, ended = weakest_first(strengths(), strengths() > 0, 24)
    # Every edge lowers the loss by 5·b³; all together an attribute gains 2, of which an edge must be worth a share of
    # 0.4. Many edges were tried, so the typical one says little.
    losses, empty = 1.0 + 5.0 * ended, 1.0 + 2.0 * D
    found = worth_threshold(ended, losses, empty, D, 0.4, 2.0)
    assert found == pytest.approx((0.4 * 2.0 / 5.0) ** (1 / 3), rel=1e-3)
    assert worth_threshold(ended, losses, empty, D, 0.8, 2.0) == pytest.approx(found * 2 ** (1 / 3), rel=1e-3)


def test_what_is_typical_decides_where_no_edge_could_be_tried_or_none_of_them_matters() -> None:
    nothing = weakest_first(strengths(), np.zeros((D, D), dtype=bool), 24)[1]
    assert worth_threshold(nothing, np.array([1.0]), 7.0, D, 0.4, 2.0) == pytest.approx(TYPICAL)
    weak = weakest_first(0.1 * strengths(), strengths() > 0, 24)[1]
    assert worth_threshold(weak, np.ones(len(weak)), 7.0, D, 0.4, 2.0) == pytest.approx(TYPICAL, rel=0.01)


@pytest.mark.parametrize(("losses", "empty"), [((7.0, 8.0), 7.0), ((1.0, -50.0), 7.0)])
def test_no_edge_is_worth_anything_where_none_lowers_the_loss(losses: tuple[float, float], empty: float) -> None:
    assert worth_threshold(np.array([0.0, 3.0]), np.array(losses), empty, D, 0.4, 2.0) == 4.0


SMALL = Settings(width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=())


def opened(monkeypatch: pytest.MonkeyPatch, **change: Any) -> dict[tuple[str, int], int]:
    """How often each party opened every set of rows kept apart."""
    counted: dict[tuple[str, int], int] = {}
    really = Holder.opened

    def watched(self: Holder, link: Any, batch: int, graph: Any = None) -> Any:
        if batch >= len(self.plan.batches):
            counted[self.name, batch] = counted.get((self.name, batch), 0) + 1
        return really(self, link, batch, graph)

    monkeypatch.setattr(Holder, "opened", watched)
    values = np.random.default_rng(0).standard_normal((60, 5))
    columns = {"a": values[:, :2], "b": values[:, 2:4], "c": values[:, 4:]}
    discover(columns, tuple("vwxyz"), SMALL.model_copy(update=change), seed=1, timeout=30.0)
    return counted


@pytest.mark.parametrize("rule", ["held_out", "mixture", 0.2])
def test_a_row_kept_apart_is_opened_once(monkeypatch: pytest.MonkeyPatch, rule: Any) -> None:
    assert opened(monkeypatch, threshold=rule) == {(name, 6): 1 for name in "abc"}


def test_only_the_labelled_rule_opens_it_under_every_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(opened(monkeypatch, threshold="held_out_graphs").values()) == {SMALL.candidates + 1}


def test_there_are_no_triples_to_open_it_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    really = Holder.features

    def twice(self: Holder, link: Any, batch: int, graph: Any = None) -> Any:
        if batch >= len(self.plan.batches):
            really(self, link, batch, graph)
        return really(self, link, batch, graph)

    monkeypatch.setattr(Holder, "features", twice)
    with pytest.raises(RunError, match="no forward triple is left"):
        opened(monkeypatch)
