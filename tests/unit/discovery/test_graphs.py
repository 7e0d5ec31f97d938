"""Graphs as matrices: order, cycles and the greedy cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from veracausa.data.causal import topological_order
from veracausa.discovery.graphs import cut, greedy_cut, is_acyclic, smallest_acyclic_threshold, thresholded
from veracausa.errors import InputError


def edges(d: int, *pairs: tuple[int, int]) -> np.ndarray:
    matrix = np.zeros((d, d), dtype=bool)
    for cause, effect in pairs:
        matrix[cause, effect] = True
    return matrix


def test_order_puts_causes_first():
    assert topological_order(edges(3, (2, 0), (0, 1))) == [2, 0, 1]
    assert topological_order(edges(3, (0, 1), (1, 2), (2, 0))) is None
    assert is_acyclic(np.zeros((0, 0)))
    assert not is_acyclic(np.eye(1))


@st.composite
def problems(draw):
    d = draw(st.integers(1, 7))
    strength = draw(arrays(float, (d, d), elements=st.floats(0, 1)))
    order = np.array(draw(st.permutations(range(d))))
    rank = np.argsort(order)
    forward = rank[:, None] < rank[None, :]
    required = draw(arrays(bool, (d, d))) & forward
    forbidden = draw(arrays(bool, (d, d))) & ~required
    return strength, draw(st.floats(0, 1)), required, forbidden


@given(problems())
def test_cut_is_a_dag_that_keeps_the_constraints(problem):
    strength, threshold, required, forbidden = problem
    dag = greedy_cut(strength, threshold, required, forbidden)
    assert is_acyclic(dag)
    assert dag[required].all()
    assert not dag[forbidden].any()
    strong = thresholded(strength, threshold)
    assert not (dag & ~required & ~strong).any()
    # Maximal: each strong edge that was left out is forbidden or would close a cycle.
    for cause, effect in np.argwhere(strong & ~dag & ~forbidden):
        dag[cause, effect] = True
        assert not is_acyclic(dag)
        dag[cause, effect] = False


@given(arrays(float, (4, 4), elements=st.integers(0, 5).map(float)))
def test_the_smallest_acyclic_threshold_is_that(strength):
    least = smallest_acyclic_threshold(strength)
    assert is_acyclic(thresholded(strength, least))
    weaker = strength[~np.eye(4, dtype=bool) & (strength > 0) & (strength < least)]
    assert all(not is_acyclic(thresholded(strength, level)) for level in weaker)


def test_stronger_edge_wins_and_the_cycle_is_told():
    strength = np.array([[9.0, 0.5, 0.0], [0.7, 0.0, 0.3], [0.2, 0.0, 0.0]])
    result = cut(strength, 0.25)
    assert result.adjacency.tolist() == edges(3, (1, 0), (1, 2)).tolist()
    assert not result.was_acyclic
    assert result.before.tolist() == edges(3, (0, 1), (1, 0), (1, 2)).tolist()
    # A required edge comes first, so the stronger reverse can not.
    assert greedy_cut(strength, 0.25, required=edges(3, (0, 1)))[0, 1]


@pytest.mark.parametrize(
    ("required", "forbidden", "said"),
    [
        (edges(2, (0, 1)), edges(2, (0, 1)), "required and forbidden"),
        (edges(2, (0, 1), (1, 0)), None, "form a cycle"),
        (edges(3, (0, 1)), None, r"required: shape \(3, 3\)"),
    ],
)
def test_impossible_constraints_are_refused(required, forbidden, said):
    with pytest.raises(InputError, match=said):
        greedy_cut(np.ones((2, 2)), 0.1, required, forbidden)


def test_strengths_that_are_no_numbers_are_refused():
    with pytest.raises(InputError, match="diverged"):
        greedy_cut(np.full((2, 2), np.nan), 0.1)
