"""Published methods on a graph of four columns: each finds more than nothing, keeps the time and repeats itself."""

from __future__ import annotations

import time

import numpy as np
import pytest
from refusals import Names

from veracausa.discovery.acyclicity import augmented_lagrangian
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.methods import build, methods
from veracausa.errors import InputError

TRUTH = [("x0", "x1"), ("x1", "x3"), ("x2", "x3")]
ENOUGH = {
    "notears_mlp": {"iterations": 100, "rounds": 6},
    "nobears": {"iterations": 40, "rounds": 2, "learning_rate": 0.03},
    "sdcd": {"epochs": 25, "batch": 100, "learning_rate": 0.03, "growth": 0.05},
    "dcdi": {"epochs": 60, "batch": 16, "sparsity": 0.02},
    "dcdfg": {"epochs": 60, "batch": 16, "factors": 8, "sparsity": 0.02},
    "dagma_mlp": {"warm_iterations": 1000, "iterations": 2000},
}
"""Settings that find this graph sooner than the defaults do, with which all others are tried."""
QUICK = ("sortnregress", "notears", "nobears", "sdcd", "cam")
"""The others take seconds each."""
ELSEWHERE = ("dagma", "dagma_mlp", "boss", "pc", "direct_lingam")
"""Linear methods, or slow ones, that have data of their own: below, or in test_classic_methods."""
BY_HAND = "dagma needs igraph, which is GPL, so no extra installs it"
BASELINES = [name for name in methods.names() if not methods.get(name).federated and name not in ELSEWHERE]


def each(*names: str):
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    b = np.tanh(2 * a) + 0.3 * a + 0.3 * rng.normal(size=400)
    c = rng.normal(size=400)
    return np.stack([a, b, c, np.sin(2 * c) + b**2 + 0.3 * rng.normal(size=400)], axis=1)


def fitted(name: str, table: np.ndarray, **settings):
    if name.startswith("dagma"):
        pytest.importorskip("dagma", reason=BY_HAND)
    return build(name, **{**ENOUGH.get(name, {}), **settings}).fit(table)


# DAGMA's networks need far more iterations than a test can wait for.
@pytest.mark.parametrize("name", each(*BASELINES))
def test_it_beats_the_empty_graph_and_repeats(name, table):
    before = table.copy()
    method = fitted(name, table)
    assert np.array_equal(table, before)
    assert is_acyclic(method.adjacency_matrix_)
    # The graph without edges has a distance of three.
    assert method.score(TRUTH) < len(TRUTH)
    assert method.score(TRUTH, "f1") > 0
    assert np.array_equal(method.strengths_, fitted(name, table).strengths_)


@pytest.mark.parametrize(
    "name", each("notears", "nobears", "sdcd", "notears_mlp", "dcdi", "dcdfg", "dagma", "dagma_mlp")
)
def test_it_ends_when_its_time_is_up(name, table):
    if name.startswith("dagma"):
        pytest.importorskip("dagma", reason=BY_HAND)
    began = time.monotonic()
    method = build(name, time_limit=0.05).fit(table)
    # The defaults take minutes; the factor is for a busy machine.
    assert time.monotonic() - began < 20
    assert is_acyclic(method.adjacency_matrix_)


def test_sorting_by_variance_knows_when_there_is_nothing_to_sort_by(table):
    raw = build("sortnregress").fit(table * [1, 3, 1, 9])
    assert raw.score(TRUTH) <= 1
    assert not raw.notes_
    standard = build("sortnregress", standardise=True).fit(table)
    assert "random" in standard.notes_[-1]
    assert build("sortnregress", by="r2").fit(table).adjacency_matrix_.any()


@pytest.mark.parametrize("name", each("notears", "dagma"))
def test_linear_methods_find_a_linear_graph(name):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(1000, 4))
    values[:, 1] += 1.5 * values[:, 0]
    values[:, 3] += 1.2 * values[:, 1] - 1.5 * values[:, 2]
    method = fitted(name, values, standardise=False)
    assert method.score(TRUTH) == 0
    assert method.strengths_[2, 3] == pytest.approx(1.5, abs=0.2)
    assert method.thresholded_is_dag_


def test_the_augmented_lagrangian_meets_its_constraint():
    # min (x − 3)² under x = 1: each unconstrained minimum by Newton steps.
    def solve(x: float, multiplier: float, penalty: float) -> tuple[float, float]:
        for _ in range(100):
            h, slope = x - 1, 1.0
            x -= (2 * (x - 3) + (multiplier + penalty * h) * slope) / (2 + penalty)
        return x, abs(x - 1)

    seen: list[dict] = []
    x = augmented_lagrangian(solve, 5.0, time_is_up=lambda: False, log=lambda **row: seen.append(row))
    assert x == pytest.approx(1, abs=1e-6)
    assert seen[-1]["h"] < 1e-6


def test_a_package_that_is_not_there_is_named(monkeypatch, table):
    monkeypatch.setitem(__import__("sys").modules, "dagma.linear", None)
    with pytest.raises(InputError, check=Names("dagma", "igraph")):
        build("dagma").fit(table)
