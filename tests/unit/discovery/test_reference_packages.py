"""Our own code of published methods beside the packages of their authors or of others, where they are installed."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.data.causal import load_causal
from veracausa.discovery.methods import build
from veracausa.metrics.graphs import r2_sortability, var_sortability


@pytest.fixture(scope="module")
def raw():
    """As generated: its columns differ in variance, so that there is something to sort by."""
    return load_causal("synthetic", attributes=8, edges=14, rows=300, seed=3, standardise=False)


@pytest.mark.parametrize(("by", "reference"), [("variance", "var_sort_regress"), ("r2", "r2_sort_regress")])
def test_sortnregress_is_that_of_its_authors(raw, by: str, reference: str):
    theirs = getattr(pytest.importorskip("CausalDisco.baselines"), reference)(raw.values)
    ours = build("sortnregress", by=by).fit(raw.values).strengths_
    assert np.allclose(ours, np.abs(theirs), atol=1e-8)
    assert ours.any()


def test_sortability_is_that_of_its_authors(raw):
    theirs = pytest.importorskip("CausalDisco.analytics")
    truth = raw.truth.astype(float)
    assert var_sortability(raw.values, raw.truth) == pytest.approx(theirs.var_sortability(raw.values, truth))
    assert r2_sortability(raw.values, raw.truth) == pytest.approx(theirs.r2_sortability(raw.values, truth))


def test_linear_notears_finds_what_gcastle_finds():
    castle = pytest.importorskip("castle.algorithms")
    rng = np.random.default_rng(1)
    values = rng.normal(size=(500, 5))
    for cause, effect, weight in ((0, 1, 1.5), (1, 3, 1.2), (2, 3, -1.5), (3, 4, 0.9)):
        values[:, effect] += weight * values[:, cause]
    other = castle.Notears(lambda1=0.1, w_threshold=0.0)
    other.learn(values)
    ours = build("notears", sparsity=0.1, standardise=False).fit(values).strengths_
    # Both stop at h = 1e-8, from where weights of this size still move in the third digit.
    assert np.allclose(ours, np.abs(other.weight_causal_matrix), atol=1e-2)


def test_pc_has_the_neighbours_of_causal_learn():
    reference = pytest.importorskip("causallearn.search.ConstraintBased.PC")
    data = load_causal("suite", generator="linear", seed=1)
    theirs = reference.pc(data.values, 0.05, show_progress=False).G.graph
    ours = build("pc", alpha=0.05).fit(data).adjacency_matrix_
    np.testing.assert_array_equal(ours | ours.T, theirs != 0)


def test_boss_finds_the_class_that_causal_learn_finds():
    reference = pytest.importorskip("causallearn.search.PermutationBased.BOSS")
    data = load_causal("suite", generator="linear", rows=5000, seed=1)
    # Their λ is a price in log(rows), ours in halves of it.
    theirs = reference.boss(data.values, parameters={"lambda_value": 1.0}, verbose=False).graph
    found = build("boss").fit(data)
    np.testing.assert_array_equal(found.undirected_, (theirs == -1) & (theirs.T == -1))
    np.testing.assert_array_equal(found.adjacency_matrix_ & ~found.undirected_, (theirs == -1) & (theirs.T == 1))


def test_direct_lingam_is_that_of_its_authors():
    reference = pytest.importorskip("causallearn.search.FCMBased.lingam")
    data = load_causal("suite", generator="linear", noise="exponential", seed=2)
    theirs = reference.DirectLiNGAM()
    theirs.fit(data.values)
    ours = build("direct_lingam").fit(data).strengths_
    assert np.allclose(ours, np.abs(theirs.adjacency_matrix_.T), atol=1e-8)
