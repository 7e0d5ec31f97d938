"""Which strength is worth an edge, and that asking held-out rows opens each of them once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.shares.plaintext_twin import discover_plaintext
from veracausa.discovery.engines.shares.share_engine import ShareEngine
from veracausa.discovery.engines.shares.validator import Validator
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.structure import (
    POWER,
    endings,
    mixture_threshold,
    rule_in_words,
    worth_threshold,
)
from veracausa.errors import RunError

D = 6


def strengths(seed: int = 0) -> np.ndarray:
    return np.triu(np.random.default_rng(seed).uniform(0.1, 2.0, (D, D)), 1)


@given(st.integers(0, 50), st.integers(2, 30))
def test_a_party_can_end_by_itself_every_edge_into_its_attributes_and_no_single_foreign_one(
    seed: int, count: int
) -> None:
    b = strengths(seed)
    for own in (slice(0, 2), slice(2, 5), slice(5, 6)):
        ended = endings(b, own, count)
        assert len(ended) <= count
        into = np.zeros((D, D), dtype=bool)
        into[:, own] = b[:, own] > 0
        assert (ended.sum(0) == into).all(), "each edge in one trial"
        foreign = into.copy()
        foreign[own, own] = False
        for edges in ended:
            # Of the sum over all others a party can not take a part away: to try that, rows would be opened twice.
            touched = (edges & foreign).any(0)
            assert (edges[:, touched] & foreign[:, touched] == foreign[:, touched]).all()


def tried(power: float, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Strengths, the trials of two parties, and rises as edges would give that are worth scale·b^power each."""
    b = strengths()
    sets = np.concatenate([endings(b, own, 24) for own in (slice(0, 3), slice(3, 6))])
    return b, sets, np.where(sets, scale * b**power, 0.0).sum((1, 2))


def test_an_edge_is_worth_its_place_where_the_fitted_loss_says_so() -> None:
    b, sets, rises = tried(POWER, 5.0)
    # An attribute gains 3 from its causes, of which an edge must be worth 0.4, less a tenth for the modest gain.
    found = worth_threshold(b, b > 0, sets, rises, 2.7, 0.4, 200)
    assert found == pytest.approx((0.4 * 2.7 * 0.9 / 5.0) ** (1 / POWER), rel=0.01)
    assert worth_threshold(b, b > 0, sets, rises, 2.7, 0.8, 200) == pytest.approx(found * 2 ** (1 / POWER), rel=0.02)


@pytest.mark.parametrize("scale", [0.05, 0.3, 3.0])
def test_weak_strengths_have_a_low_threshold_if_they_are_worth_as_much(scale: float) -> None:
    # The same data with weights of another size: no constant decides in their place.
    b, sets, rises = tried(2.0, 1.0)
    whole = worth_threshold(b, b > 0, sets, rises, 0.5, 0.4, 200)
    assert worth_threshold(scale * b, b > 0, sets, rises, 0.5, 0.4, 200) == pytest.approx(scale * whole, rel=0.02)


def test_a_wild_rise_does_not_decide() -> None:
    b, sets, rises = tried(POWER, 1.0)
    calm = worth_threshold(b, b > 0, sets, rises, 1.0, 0.4, 200)
    rises[3] *= 1000
    assert worth_threshold(b, b > 0, sets, rises, 1.0, 0.4, 200) == pytest.approx(calm, rel=0.2)


def test_strengths_part_in_two_where_rises_do_not_say_where_edges_begin() -> None:
    b, sets, rises = tried(POWER, 1e-3)
    rises = np.clip(rises, 0.0, 0.05)
    found = worth_threshold(b, b > 0, sets, rises, 2.0, 0.4, 200)
    assert found == mixture_threshold(b, b > 0)
    assert "did not say" in rule_in_words("held_out", b, b > 0, found)


@pytest.mark.parametrize("gain", [0.0, 0.5])
def test_no_edge_counts_where_none_is_worth_more_than_chance(gain: float) -> None:
    b, sets, _ = tried(POWER, 1.0)
    rises = np.full(len(sets), 0.009)  # of 200 rows a hundredth is chance
    found = worth_threshold(b, b > 0, sets, rises, gain, 0.4, 200)
    assert found > b.max()
    assert "better than chance" in rule_in_words("held_out", b, b > 0, found)
    assert worth_threshold(b, b > 0, sets[:0], rises[:0], gain, 0.4, 200) > b.max()


def test_a_threshold_that_was_set_is_called_that() -> None:
    b = strengths()
    assert rule_in_words(0.3, b, b > 0, 0.3) == "as it was set"
    assert rule_in_words("held_out", b, b > 0, 0.3).startswith("rule held_out")


SMALL = Settings(width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=())


def opened(monkeypatch: pytest.MonkeyPatch, **change: Any) -> dict[tuple[str, int], int]:
    """How often each party opened every set of held-out rows."""
    counted: dict[tuple[str, int], int] = {}
    really = ShareEngine._answers  # whatever opens rows, in one sum or by peer, asks here

    def watched(self: ShareEngine, link: Any, batches: tuple[int, ...], graph: Any, at: int | None) -> Any:
        for batch in batches:
            if batch >= len(self.plan.batches):
                counted[self.name, batch] = counted.get((self.name, batch), 0) + 1
        return really(self, link, batches, graph, at)

    monkeypatch.setattr(ShareEngine, "_answers", watched)
    values = np.random.default_rng(0).standard_normal((60, 5))
    columns = {"a": values[:, :2], "b": values[:, 2:4], "c": values[:, 4:]}
    run_federation(columns, tuple("vwxyz"), SMALL.model_copy(update=change), seed=1, timeout=30.0)
    return counted


@pytest.mark.parametrize("rule", ["held_out", "mixture", 0.2])
def test_a_row_kept_apart_is_opened_once(monkeypatch: pytest.MonkeyPatch, rule: Any) -> None:
    assert opened(monkeypatch, threshold=rule) == {(name, 6): 1 for name in "abc"}


def test_only_the_labelled_rule_opens_it_under_every_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(opened(monkeypatch, threshold="held_out_graphs").values()) == {SMALL.candidates + 1}


def test_there_are_no_triples_to_open_it_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    really = ShareEngine.features

    def twice(self: ShareEngine, link: Any, batches: tuple[int, ...], *rest: Any, **named: Any) -> Any:
        if max(batches) >= len(self.plan.batches):
            really(self, link, batches, *rest, **named)
        return really(self, link, batches, *rest, **named)

    monkeypatch.setattr(ShareEngine, "features", twice)
    with pytest.raises(RunError, match="no forward triple is left"):
        opened(monkeypatch)


def test_what_stays_of_foreign_edges_is_a_matter_of_the_party_alone() -> None:
    # Rises by party and trial, from what the party opened once: beside its own edges, all that others add to one.
    values = np.random.default_rng(0).standard_normal((80, 4))
    values[:, 2] = np.tanh(2 * values[:, 0]) + 0.1 * values[:, 2]
    columns = {"a": values[:, :2], "b": values[:, 2:]}
    seen: dict[str, np.ndarray] = {}
    really = Validator._scored

    def watched(self: Validator, link: Any, proposed: Any) -> Any:
        losses, empty = really(self, link, proposed)
        seen.update({party: mask["own"] for party, mask in proposed.items()})
        seen["losses of b"] = losses["b"]
        return losses, empty

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validator, "_scored", watched)
        settings = SMALL.model_copy(update={"epochs": 30, "refit_epochs": 20, "candidates": 12})
        backwards = np.tri(4, dtype=bool)
        discover_plaintext(columns, tuple("wxyz"), settings, forbidden=backwards & ~np.eye(4, dtype=bool), seed=1)
    stays, losses = seen["b"], seen["losses of b"]
    assert stays[0].all(), "first with all edges"
    without = [at for at, one in enumerate(stays) if not one[0, 0] and one[1, 1]]
    assert losses[without[0]] > losses[0] + 0.1, "y is nothing without its foreign cause"
