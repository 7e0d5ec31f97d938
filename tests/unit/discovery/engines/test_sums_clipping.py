"""A party's part of a row under noise: lines keep their size, curves give way, and the norm holds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sums_runs import sums_plan, table
from veracausa.discovery.engines.sums.clipping import shortened, units_under_noise, usual_clip
from veracausa.discovery.engines.sums.features import feature_units, own_features
from veracausa.discovery.methods.moments.expansion import NodeLayout, PairLayout

NODES = (NodeLayout("a", "number", 4), NodeLayout("b", "binary", 1), NodeLayout("c", "nominal", 6))


def test_a_column_weighs_the_same_whatever_it_has_of_functions() -> None:
    units = units_under_noise(NODES, ())
    weights = np.square(1 / units)
    assert weights[0] == weights[4] == 1
    assert weights[1:4].sum() == pytest.approx(1)
    assert weights[5:].sum() == pytest.approx(2)


def test_products_weigh_one_for_each_column() -> None:
    units = units_under_noise(NODES[:2], (PairLayout(0, 1, 3),))
    assert np.square(1 / units[5:]).sum() == pytest.approx(2)


def test_more_functions_need_no_longer_rows() -> None:
    assert usual_clip(5, 1, False) < usual_clip(5, 2, False) == usual_clip(5, 6, False)


def test_curves_give_way_and_lines_stay() -> None:
    rng = np.random.default_rng(0)
    features, clip = rng.standard_normal((400, 11)), 3.0
    made = shortened(features, NODES, clip)
    lines = [0, 4, *range(5, 11)]
    assert np.array_equal(made[:, lines], features[:, lines])
    norms, straight = np.linalg.norm(made, axis=1), np.linalg.norm(features[:, lines], axis=1)
    assert (norms <= np.maximum(straight, clip) * (1 + 1e-12)).all()
    short = np.linalg.norm(features, axis=1) <= clip
    assert 0 < short.sum() < 400
    assert np.array_equal(made[short], features[short])


def test_few_rows_of_normal_columns_are_longer_than_the_clip() -> None:
    plan, values = sums_plan(600, epsilon=8.0, functions=3), table()
    for party in plan.parties:
        own = own_features(plan, party, values[party])
        norms = np.linalg.norm(own.features, axis=1)
        assert plan.clip is not None
        assert (norms > plan.clip * (1 + 1e-9)).mean() < 0.1


def test_without_noise_nothing_is_weighed_or_shortened() -> None:
    plan, values = sums_plan(600, functions=3), table()
    party = plan.parties[0]
    own = own_features(plan, party, values[party])
    nodes = [node for node in own.nodes if node is not None]
    assert plan.clip is None
    lines = [at for node, at in zip(nodes, np.cumsum([0, *(node.width for node in nodes)]), strict=False)]
    assert (feature_units(plan, nodes)[lines] == 1).all()
    for node, at in zip(nodes, lines, strict=True):
        functions = own.features[:, at : at + node.functions]
        assert np.allclose(functions.std(axis=0), 1)


def test_a_clip_that_is_asked_for_holds() -> None:
    plan = sums_plan(600, epsilon=8.0, clip=2.5, functions=2)
    assert plan.clip == 2.5
    assert plan.moments(dict.fromkeys(plan.parties, 4)).clip == 2.5
    usual = sums_plan(600, epsilon=8.0, functions=2)
    widest = max(map(len, usual.columns.values()))
    assert usual.clip == math.sqrt(1.5 * widest * 2)
