"""SHD, F1 and sortability on graphs small enough to count by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refusals import Names

from veracausa.errors import InputError
from veracausa.metrics.graphs import (
    directed_scores,
    empty_graph_shd,
    graph_scores,
    party_scores,
    r2_given_others,
    r2_sortability,
    shd,
    shd_reversal_2,
    skeleton_scores,
    sortability,
    var_sortability,
)

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
"""0 -> 1 -> 2"""


def test_a_reversed_edge_costs_one_and_in_the_variant_two():
    reversed_first = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]])
    assert shd(CHAIN, reversed_first) == 1
    assert shd_reversal_2(CHAIN, reversed_first) == 2
    assert directed_scores(CHAIN, reversed_first).f1 == 0.5
    assert skeleton_scores(CHAIN, reversed_first).f1 == 1.0


def test_missing_and_added_edges_cost_one_each():
    other = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]])
    assert shd(CHAIN, other) == shd_reversal_2(CHAIN, other) == 2
    assert empty_graph_shd(CHAIN) == 2


graphs = arrays(bool, (5, 5)).map(lambda a: np.triu(a, 1))


@given(graphs, graphs, st.permutations(range(5)))
def test_shd_is_a_distance_that_does_not_see_the_order_of_columns(truth, guess, order):
    guess = guess[np.ix_(order, order)]
    assert shd(truth, truth) == 0
    assert shd(truth, guess) == shd(guess, truth)
    assert shd(truth[np.ix_(order, order)], guess[np.ix_(order, order)]) == shd(truth, guess)
    scores = directed_scores(truth, guess)
    reversals = (truth & guess.T).sum()
    assert shd(truth, guess) == scores.predicted + scores.true - 2 * scores.found - reversals


def test_edges_inside_and_between_parties_are_scored_apart():
    guess = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]])
    inside, between = party_scores(CHAIN, guess, ["a", "a", "b"])
    assert (inside.f1, between.f1) == (1.0, 0.0)
    alone, _ = party_scores(CHAIN, guess, ["a", "b", "c"])
    assert math.isnan(alone.f1)
    assert graph_scores(CHAIN, guess, ["a", "a", "b"])["inter_party_f1"] == 0.0
    with pytest.raises(InputError, check=Names("owners", "2", "3")):
        party_scores(CHAIN, guess, ["a", "b"])


def test_sortability_counts_paths():
    assert sortability([1, 2, 3], CHAIN) == 1.0
    assert sortability([3, 2, 1], CHAIN) == 0.0
    assert sortability([1, 1, 1], CHAIN) == 0.5
    # 0->1 falls, 1->2 rises, 0->2 (length two) rises.
    assert sortability([1, 0.5, 3], CHAIN) == pytest.approx(2 / 3)
    assert math.isnan(sortability([1, 2, 3], np.zeros((3, 3))))


def test_variance_and_r2_of_a_chain():
    rng = np.random.default_rng(0)
    root = rng.normal(size=5000)
    middle = 2 * root + rng.normal(size=5000)
    values = np.stack([root, middle, 2 * middle + rng.normal(size=5000)], axis=1)
    assert var_sortability(values, CHAIN) == 1.0
    assert var_sortability(values / values.std(axis=0), CHAIN) == 0.5
    # The middle of a chain is what the others explain best.
    assert r2_given_others(values).argmax() == 1
    assert 0 < r2_sortability(values, CHAIN) < 1
    assert r2_given_others(values)[0] == pytest.approx(np.corrcoef(values[:, :2].T)[0, 1] ** 2, abs=0.01)


def test_sortabilities_equal_the_published_code():
    published = pytest.importorskip("CausalDisco.analytics")
    rng = np.random.default_rng(0)
    for _ in range(3):
        truth = np.triu(rng.random((6, 6)) < 0.5, 1)
        values = rng.normal(size=(100, 6)) @ (np.eye(6) + truth)
        assert var_sortability(values, truth) == pytest.approx(published.var_sortability(values, truth.astype(float)))
        assert r2_sortability(values, truth) == pytest.approx(published.r2_sortability(values, truth.astype(float)))


def test_graphs_of_different_sizes_are_refused():
    with pytest.raises(InputError, match="can not be compared"):
        shd(CHAIN, np.zeros((2, 2)))
