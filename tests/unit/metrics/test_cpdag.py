"""Classes of DAGs: what they compel, a DAG of each, and edges without a direction in the scores."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veracausa.data.causal import topological_order
from veracausa.data.causal.synthetic import random_dag
from veracausa.metrics.cpdag import cpdag, cpdag_scores, dag_of, meek, partial_scores


def graph(d: int, *edges: tuple[int, int]) -> np.ndarray:
    found = np.zeros((d, d), dtype=bool)
    for cause, effect in edges:
        found[cause, effect] = True
    return found


def colliders(dag: np.ndarray) -> set[tuple[int, int, int]]:
    d = len(dag)
    return {
        (a, b, c)
        for a in range(d)
        for b in range(d)
        for c in range(a + 1, d)
        if dag[a, b] and dag[c, b] and not dag[a, c] and not dag[c, a]
    }


def whole_class(dag: np.ndarray) -> list[np.ndarray]:
    """Every DAG with the same neighbours and colliders, by trying all orders."""
    near, found = dag | dag.T, {}
    for order in permutations(range(len(dag))):
        rank = np.argsort(order)
        other = near & (rank[:, None] < rank[None, :])
        if colliders(other) == colliders(dag):
            found[other.tobytes()] = other
    return list(found.values())


@given(st.integers(2, 5), st.integers(0, 10**6), st.data())
def test_the_cpdag_is_what_all_dags_of_the_class_share(d, seed, data):
    edges = data.draw(st.integers(0, d * (d - 1) // 2))
    dag = random_dag(d, edges, np.random.default_rng(seed))
    directed, undirected = cpdag(dag)
    members = whole_class(dag)
    shared = np.logical_and.reduce(members)
    np.testing.assert_array_equal(directed, shared)
    np.testing.assert_array_equal(undirected, (dag | dag.T) & ~(shared | shared.T))


@given(st.integers(2, 9), st.integers(0, 10**6), st.data())
def test_a_dag_of_the_class_has_its_class(d, seed, data):
    edges = data.draw(st.integers(0, d * (d - 1) // 2))
    directed, undirected = cpdag(random_dag(d, edges, np.random.default_rng(seed)))
    found = dag_of(directed, undirected)
    assert found is not None
    assert topological_order(found) is not None
    for ours, theirs in zip(cpdag(found), (directed, undirected), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_no_dag_can_be_has_none():
    ring = graph(4, (0, 1), (1, 2), (2, 3), (3, 0))
    assert dag_of(np.zeros_like(ring), ring | ring.T) is None  # a ring of four without chords needs a collider
    assert dag_of(graph(3, (0, 1), (1, 2), (2, 0)), np.zeros((3, 3))) is None


def test_knowledge_compels_by_the_fourth_rule():
    # 0 - 1, 0 - 2, 0 - 3 and 2 -> 3 -> 1, 2 and 1 apart: 1 -> 0 would make 2 -> 0 or a collider of 1 and 2.
    lines = graph(4, (0, 1), (0, 2), (0, 3))
    directed, undirected = meek(graph(4, (2, 3), (3, 1)), lines | lines.T)
    assert directed[0, 1]
    assert undirected[0, 2]


def test_an_undirected_edge_counts_half():
    truth = graph(4, (0, 1), (1, 2), (2, 3))
    lines = graph(4, (0, 1), (1, 0), (0, 3), (3, 0))
    predicted = graph(4, (1, 2), (0, 3), (1, 0))  # the DAG of the class may have either direction
    scores = partial_scores(truth, predicted, lines)
    assert (scores.found, scores.predicted, scores.true) == (1.5, 3, 3)
    assert scores.f1 == pytest.approx(0.5)
    exact = partial_scores(truth, truth, np.zeros_like(truth))
    assert exact.f1 == 1


def test_directions_that_nobody_can_know_are_counted():
    chain = graph(3, (0, 1), (1, 2))
    none = np.zeros_like(chain)
    assert cpdag_scores(chain, chain, none)["uncompelled"] == 2
    assert cpdag_scores(chain, chain, chain | chain.T) == {"partial_f1": 0.5, "undirected": 2, "uncompelled": 0}
    collider = graph(3, (0, 1), (2, 1))
    assert cpdag_scores(collider, collider, none)["uncompelled"] == 0
