"""The evidence of a graph by Gaussian processes, and moves of single edges by it."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.arrays import Array, Mask
from veracausa.discovery.evidence import climbed, near_columns, turned_margins
from veracausa.discovery.gaussian_processes import RowEvidence


@pytest.fixture(scope="module")
def rows() -> Array:
    """x and z cause y, which causes w."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 400))
    y = np.sin(2 * x) * (1 + 0.5 * z) + 0.2 * rng.normal(size=400)
    w = y**2 + y + 0.3 * rng.normal(size=400)
    return np.column_stack([x, z, y, w])


def graph_of(*edges: tuple[int, int]) -> Mask:
    graph = np.zeros((4, 4), dtype=bool)
    for edge in edges:
        graph[edge] = True
    return graph


TRUTH = ((0, 2), (1, 2), (2, 3))
NONE = np.zeros((4, 4), dtype=bool)
MAY = ~np.eye(4, dtype=bool)


@pytest.fixture(scope="module")
def evidence(rows: Array) -> RowEvidence:
    return RowEvidence(rows, np.random.default_rng(1))


def test_a_column_without_causes_has_the_evidence_of_a_normal_one(evidence: RowEvidence, rows: Array) -> None:
    assert evidence(0, ()) == pytest.approx(-0.5 * 400 * np.log(2 * np.pi * np.e), rel=1e-6)


def test_the_bound_is_below_the_likelihood_of_a_known_process() -> None:
    """Of straight lines with normal weights the evidence is known in closed form."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=300)
    y = x + 0.5 * rng.normal(size=300)
    table = np.column_stack([x, y])
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    found = RowEvidence(table, np.random.default_rng(0))
    best = max(
        -0.5 * (np.linalg.slogdet(k)[1] + table[:, 1] @ np.linalg.solve(k, table[:, 1]) + 300 * np.log(2 * np.pi))
        for noise in (0.1, 0.15, 0.2, 0.25, 0.3)
        for k in [np.outer(table[:, 0], table[:, 0]) + noise * np.eye(300)]
    )
    assert found(1, (0,)) == pytest.approx(best - 0.5 * np.log(300), abs=3)
    assert found(1, (0,)) > found(1, ()) + 100


def test_the_true_graph_is_the_likeliest_of_its_neighbours(evidence: RowEvidence) -> None:
    right = evidence.of(graph_of(*TRUTH))
    for wrong in (TRUTH[:2], (*TRUTH, (0, 3)), ((2, 0), (1, 2), (2, 3)), ((0, 2), (1, 2), (3, 2))):
        assert evidence.of(graph_of(*wrong)) < right


def test_what_causes_explain_follows_from_the_noise(evidence: RowEvidence) -> None:
    explained = evidence.explained(graph_of(*TRUTH))
    assert explained[0] == explained[1] == 0
    assert explained[2] > 0.85
    assert explained[3] > 0.85


@pytest.mark.parametrize("start", [(), ((2, 0), (3, 2)), ((0, 2), (0, 3), (1, 3))])
def test_a_climb_mends_a_wrong_graph(evidence: RowEvidence, start: tuple[tuple[int, int], ...]) -> None:
    told: list[float] = []
    found = climbed(evidence, graph_of(*start), MAY, NONE, MAY, progress=told.append)
    assert (found == graph_of(*TRUTH)).all()
    assert told
    assert all(0 <= share <= 1 for share in told)


def test_a_climb_keeps_to_what_is_known(evidence: RowEvidence) -> None:
    forbidden = MAY.copy()
    forbidden[0, 2] = False
    found = climbed(evidence, NONE, forbidden, NONE, MAY)
    assert not found[0, 2]
    required = graph_of((3, 1))
    found = climbed(evidence, required, MAY, required, MAY)
    assert found[3, 1]


def test_a_climb_stops_when_time_is_up(evidence: RowEvidence) -> None:
    start = graph_of((2, 0))
    assert (climbed(evidence, start, MAY, NONE, MAY, lambda: True) == start).all()


def test_margins_are_what_turning_an_edge_costs(evidence: RowEvidence) -> None:
    truth = graph_of(*TRUTH)
    margins = turned_margins(evidence, truth, MAY, graph_of((1, 2)))
    assert margins[1, 2] == np.inf
    turned = evidence.of(graph_of((0, 2), (1, 2), (3, 2)))
    assert margins[2, 3] == pytest.approx(400 * (evidence.of(truth) - turned), rel=1e-6)
    assert (margins[~truth] == 0).all()
    assert (margins[truth] > 3).all()


def test_the_same_seed_gives_the_same_bits(rows: Array) -> None:
    first, second = (RowEvidence(rows, np.random.default_rng(5))(2, (0, 1)) for _ in range(2))
    assert first == second


def test_near_columns_are_neighbours_and_their_neighbours() -> None:
    near = near_columns([graph_of((0, 2)), graph_of((2, 3))])
    assert near[0, 3]
    assert not near[0, 1]
    assert not near.diagonal().any()
