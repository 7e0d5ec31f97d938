"""CAM, BOSS, PC and DirectLiNGAM: each on the data that it is made for, and what it can not tell."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.data.causal import CausalData, load_causal
from veracausa.discovery.graphs import is_acyclic
from veracausa.discovery.line_evidence import least_dependent
from veracausa.discovery.methods import build
from veracausa.discovery.methods.boss import GrowShrinkTree
from veracausa.discovery.methods.cam import AdditiveFits, spline
from veracausa.discovery.methods.pc import fisher_z
from veracausa.metrics.cpdag import cpdag

NEW = ("cam", "boss", "pc", "direct_lingam")


def drawn(**settings) -> CausalData:
    return load_causal("suite", **{"attributes": 8, "edges": 10, "rows": 1000, "seed": 3, **settings})


def f1(name: str, data: CausalData, metric: str = "f1", **settings) -> float:
    return build(name, **settings).fit(data).score(data.truth, metric)


def test_cam_finds_additive_models_and_lingam_non_gaussian_lines() -> None:
    smooth, lines = drawn(generator="gp_additive"), drawn(generator="linear", noise="exponential")
    assert f1("cam", smooth) > 0.9
    assert f1("direct_lingam", lines) > 0.9
    # And each is lost where the other lives, so that a test with the data swapped would fail.
    assert f1("direct_lingam", smooth) < 0.6
    assert f1("cam", lines) < 0.8


def test_boss_tells_the_class_of_gaussian_lines_and_no_more() -> None:
    data = drawn(generator="linear", rows=5000)
    found = build("boss").fit(data)
    directed, undirected = cpdag(data.truth)
    np.testing.assert_array_equal(found.undirected_, undirected)
    np.testing.assert_array_equal(found.adjacency_matrix_ & ~found.undirected_, directed)
    assert undirected.any()
    assert directed.any()


def test_pc_finds_a_collider_and_leaves_a_chain_open() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(3000, 5))
    a, b = noise[:, 0], noise[:, 1]
    c = a + b + noise[:, 2]
    d, e = noise[:, 3], noise[:, 3] + noise[:, 4]
    found = build("pc").fit(np.column_stack([a, b, c, d, e]))
    edges = {(int(i), int(j)) for i, j in np.argwhere(found.adjacency_matrix_ & ~found.undirected_)}
    assert edges == {(0, 2), (1, 2)}
    assert {(int(i), int(j)) for i, j in np.argwhere(found.undirected_)} == {(3, 4), (4, 3)}


def test_knowledge_closes_what_was_open() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=500)
    table = np.column_stack([a, a + rng.normal(size=500), rng.normal(size=500)])
    assert build("pc").fit(table).undirected_[0, 1]
    told = build("pc", forbidden=[("x0", "x1")], required=[("x1", "x0")]).fit(table)
    assert told.adjacency_matrix_[1, 0]
    assert not told.undirected_.any()


@pytest.mark.parametrize("name", NEW)
def test_constant_columns_and_few_values_do_no_harm(name: str) -> None:
    data = drawn(mixed=0.5, rows=200)
    table = np.column_stack([data.values, np.ones(200)])
    found = build(name).fit(table)
    assert is_acyclic(found.adjacency_matrix_)
    assert not found.undirected_[-1].any()
    alone = build(name).fit(table[:, -2:])
    assert not alone.adjacency_matrix_.any()


@pytest.mark.parametrize("name", NEW)
def test_no_time_at_all_leaves_a_graph(name: str) -> None:
    found = build(name, time_limit=0.0).fit(drawn(attributes=20, edges=40).values)
    assert is_acyclic(found.adjacency_matrix_)


def test_a_grow_shrink_tree_takes_what_a_plain_search_takes() -> None:
    covariance = np.cov(drawn(generator="linear").values.T)
    tree = GrowShrinkTree(0, covariance, 1000, 2.0)
    for allowed in ({1, 2, 3}, {4, 5, 6, 7}, set(range(1, 8)), set()):
        score, causes = tree.causes(frozenset(allowed))
        assert set(causes) <= allowed
        assert score == pytest.approx(tree.score(causes))
        for other in allowed - set(causes):
            assert tree.score([*causes, other]) <= score + 1e-9
        for cause in causes:
            assert tree.score([c for c in causes if c != cause]) <= score + 1e-9


def test_additive_fits_are_those_of_the_rows() -> None:
    values = drawn(rows=300).values
    fits = AdditiveFits(values, 6)
    table = np.column_stack([spline(values[:, 1], 6), spline(values[:, 2], 6), np.ones(300)])
    rest = values[:, 0] - table @ np.linalg.lstsq(table, values[:, 0], rcond=None)[0]
    left, used = fits.squares(0, [1, 2])
    assert left == pytest.approx((rest**2).mean(), rel=1e-3)  # the ridge
    assert used == 12


def test_splines_of_few_values_are_levels() -> None:
    column = np.array([0.0, 1, 2, 2, 1, 0, 1])
    made = spline(column, 6)
    assert made.shape == (7, 2)
    np.testing.assert_allclose(made.sum(axis=0), 0, atol=1e-12)


def test_fisher_z_is_the_partial_correlation_of_residuals() -> None:
    values = drawn(generator="linear").values
    others = np.column_stack([values[:, 2:4], np.ones(1000)])
    rest = values[:, :2] - others @ np.linalg.lstsq(others, values[:, :2], rcond=None)[0]
    partial = np.corrcoef(rest.T)[0, 1]
    z = fisher_z(np.corrcoef(values.T), 1000, 0, 1, (2, 3))
    assert z == pytest.approx(np.sqrt(995) * np.arctanh(partial))


def test_the_source_is_found_among_three() -> None:
    rng = np.random.default_rng(0)
    noise = rng.exponential(size=(2000, 3)) - 1
    effect = noise[:, 1] + noise[:, 0]
    last = effect + noise[:, 2]
    assert least_dependent(np.column_stack([last, noise[:, 1], effect])) == 1
