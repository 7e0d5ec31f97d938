"""The search on sums: regressions against rows, orders, lines or curves, what stays open."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.data.causal import CausalData, load_causal
from veracausa.discovery.methods import build
from veracausa.discovery.methods.moments.cumulants import PairCumulants, mixing_matrix
from veracausa.discovery.methods.moments.diagnostics import doubts
from veracausa.discovery.methods.moments.expansion import column_kinds, expand
from veracausa.discovery.methods.moments.regressions import Regressions, tempered
from veracausa.discovery.methods.moments.row_fits import RowFit
from veracausa.discovery.methods.moments.search import Known, search_sums
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.discovery.methods.moments.sums import SumTable, sum_table
from veracausa.metrics.graphs import graph_scores


def sums_of(data: CausalData, functions: int = 6, products: bool = False) -> SumTable:
    kinds = column_kinds(data.values, data.names, data.nominal)
    made = expand(data.values, data.names, kinds, functions, products=products)
    return sum_table(made.features.T @ made.features, made.nodes, len(data.values), None, made.pairs)


def searched(data: CausalData, known: Known | None = None, **settings: object) -> object:
    return search_sums(sums_of(data, products=True), SumsSettings(starts=2, **settings), known)  # type: ignore[arg-type]


def test_functions_of_a_column_are_uncorrelated_and_begin_with_the_number() -> None:
    column = np.random.default_rng(0).exponential(size=500)
    made = expand(column[:, None], ["x"], ["number"], 8)
    block = made.features[:, :8]
    assert np.allclose(block.T @ block / 500, np.eye(8), atol=1e-8)
    assert abs(np.corrcoef(block[:, 0], column)[0, 1]) > 0.999
    assert np.allclose(block.mean(axis=0), 0, atol=1e-8)


def test_a_regression_from_sums_is_that_of_the_rows() -> None:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(2, 600))
    y = x**2 + 0.5 * z + 0.3 * rng.normal(size=600)
    data = CausalData(np.column_stack([x, z, y]), ("x", "z", "y"))
    table = sums_of(data, functions=5)
    made = expand(data.values, data.names, ["number"] * 3, 5)
    found = Regressions(table).regression(2, ((0, 3), (1, 1)))
    design = made.features[:, [0, 1, 2, 7]]
    target = (y - y.mean()) / y.std()
    left = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    assert np.exp(found.left) == pytest.approx(left.var(), rel=1e-3)


def test_gains_are_what_adding_a_cause_gains() -> None:
    data = load_causal("suite", generator="gp_additive", attributes=6, rows=400, seed=0)
    regressions = Regressions(sums_of(data))
    known = regressions.regression(3, ((1, 2),))
    cause = int(np.argmax(known.gains))
    both = tuple(sorted({1: 2, cause: int(known.levels[cause])}.items()))
    gained = regressions.regression(3, both).score - known.score
    assert gained == pytest.approx(known.gains[cause], rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("generator", ["sines", "gp_additive"])
def test_curves_are_found_with_their_directions(generator: str) -> None:
    data = load_causal("suite", generator=generator, attributes=10, rows=800, seed=3)
    found = searched(data)
    assert found.model == "additive"  # type: ignore[attr-defined]
    assert graph_scores(data.truth, found.adjacency)["f1"] > 0.85  # type: ignore[attr-defined,arg-type]


def test_noise_that_is_not_normal_directs_lines() -> None:
    data = load_causal("suite", generator="linear", noise="exponential", attributes=8, rows=1000, seed=2)
    found = searched(data)
    assert found.model == "lingam"  # type: ignore[attr-defined]
    assert graph_scores(data.truth, found.adjacency)["f1"] > 0.9  # type: ignore[attr-defined,arg-type]


def test_normal_lines_leave_directions_open() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=1000)
    y = x + rng.normal(size=1000)
    z = y + rng.normal(size=1000)
    found = searched(CausalData(np.column_stack([x, y, z]), ("x", "y", "z")))
    assert found.model == "linear"  # type: ignore[attr-defined]
    assert found.undirected[0, 1]
    assert found.undirected[1, 2]
    assert not found.adjacency[0, 2]
    assert not found.adjacency[2, 0]


def test_two_causes_that_act_together_are_found_by_products() -> None:
    rng = np.random.default_rng(5)
    x, z = rng.normal(size=(2, 800))
    y = x * z + 0.5 * x + 0.5 * z + 0.3 * rng.normal(size=800)
    data = CausalData(np.column_stack([x, z, y]), ("x", "z", "y"))
    assert Regressions(sums_of(data, products=True)).interactions(2, ((0, 1), (1, 1)))[0] > 100
    assert searched(data).scores["products"] > 100  # type: ignore[attr-defined]


def test_constraints_and_tiers_are_kept() -> None:
    data = load_causal("suite", generator="sines", attributes=6, rows=400, seed=1)
    tiers = [0, 0, 0, 1, 1, 1]
    required, forbidden = np.zeros((2, 6, 6), dtype=bool)
    required[5, 3] = True
    forbidden[0, 1] = forbidden[1, 0] = True
    found = searched(data, Known(required, forbidden, tiers))
    graph = found.adjacency  # type: ignore[attr-defined]
    assert graph[5, 3]
    assert not graph[0, 1]
    assert not graph[1, 0]
    assert not graph[3:, :3].any()


def test_a_cause_of_a_category_is_told_from_its_effect() -> None:
    rng = np.random.default_rng(6)
    sex = rng.integers(0, 2, 1500).astype(float)
    height = 2.5 * sex + rng.normal(size=1500)
    age = rng.normal(size=1500)
    height = height + np.sin(2 * age)
    found = searched(CausalData(np.column_stack([sex, age, height]), ("sex", "age", "height")))
    assert found.adjacency[0, 2]
    assert found.adjacency[1, 2]


def test_cumulants_fit_the_right_mixing_alone() -> None:
    data = load_causal("suite", generator="linear", noise="exponential", attributes=6, rows=2000, seed=0)
    table = sums_of(data, functions=1)
    cumulants = PairCumulants.of(table)
    truth = np.asarray(data.truth)
    right = tuple(tuple((int(i), 1) for i in np.flatnonzero(column)) for column in truth.T)
    wrong = tuple(tuple((int(i), 1) for i in np.flatnonzero(row)) for row in truth)
    fits = cumulants.misfit(mixing_matrix(table, right, cumulants.numbers))
    fails = cumulants.misfit(mixing_matrix(table, wrong, cumulants.numbers))
    assert fits < cumulants.size < fails < cumulants.misfit(None)


def test_pairs_of_rows_with_gaps_are_summed_where_both_are_there() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=2000)
    y = np.sin(2 * x) + 0.3 * rng.normal(size=2000)
    x[:500] = np.nan
    table = sums_of(CausalData(np.column_stack([x, y]), ("x", "y")))
    assert table.counts[0, 1] == 1500
    assert table.counts[1, 1] == 2000
    here = ~np.isnan(x)
    assert table.correlations[0, 1] == pytest.approx(np.corrcoef(x[here], y[here])[0, 1], abs=0.02)


def test_evidence_grows_slowly_beyond_a_thousand_rows() -> None:
    few, many = tempered(np.array([500.0, 16_000.0]))
    assert few == 500
    assert 1000 < many < 4000


def test_uneven_noise_is_told_from_even_noise() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=800)
    graph = np.array([[False, True], [False, False]])
    for scale, expected in ((np.ones(800), []), (np.exp(x), [1])):
        values = np.column_stack([x, np.sin(x) + 0.5 * scale * rng.normal(size=800)])
        made = expand(values, ["x", "y"], ["number", "number"], 6)
        assert RowFit(made, values, graph).uneven() == expected


def test_auto_tries_networks_where_it_is_asked_and_keeps_what_is_likeliest() -> None:
    data = load_causal("suite", generator="sines", attributes=4, rows=200, seed=0)
    fit = build("auto", networks=True, starts=1, time_limit=3.0).fit(data)
    compared = {one["method"]: one for one in fit.compared_}  # type: ignore[attr-defined]
    assert list(compared) == ["moments", "vfedcd", "processes"]
    assert [one["kept"] for one in compared.values()] == [False, False, True]
    assert compared["processes"]["evidence"] >= max(compared[name]["evidence"] for name in ("moments", "vfedcd"))


def test_auto_finds_causes_that_act_together() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 500))
    d = 2 * np.sin(a + b) * (1 + 0.5 * (a > 0)) + c + 0.3 * rng.normal(size=500)
    data = CausalData(np.column_stack([d, c, b, a]), ("d", "c", "b", "a"))
    fit = build("auto", networks=True, starts=1).fit(data)
    assert fit.adjacency_matrix_[1:, 0].all()
    assert fit.adjacency_matrix_.sum() == 3
    assert fit.explained_[0] > 0.8  # type: ignore[attr-defined]
    assert {row["cause"] for row in fit.effects_} == {"a", "b", "c"}  # type: ignore[attr-defined]


def test_auto_keeps_to_what_is_known_where_edges_are_improved() -> None:
    data = load_causal("suite", generator="mlp", attributes=5, rows=300, seed=1)
    truth = np.argwhere(data.truth).tolist()
    cause, effect = truth[0]
    names = data.names
    fit = build(
        "auto", networks=True, starts=1, forbidden=[(names[cause], names[effect])], required=[(names[4], names[3])]
    ).fit(data)
    assert not fit.adjacency_matrix_[cause, effect]
    assert fit.adjacency_matrix_[4, 3]


def test_auto_leaves_networks_out_where_curves_add_up() -> None:
    data = load_causal("suite", generator="sines", attributes=6, rows=400, seed=0)
    fit = build("auto", starts=1).fit(data)
    assert [one["method"] for one in fit.compared_] == ["moments"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"generator": "linear", "noise": "exponential", "explained": 0.5}, "lingam"),
        ({"generator": "linear", "noise": "laplace", "explained": 0.5}, "lingam"),
        ({"generator": "paper", "explained": 0.5}, "additive"),
        ({"generator": "sines", "explained": 0.3}, "additive"),
    ],
)
def test_lines_are_told_from_curves_where_causes_explain_little(settings: dict[str, object], expected: str) -> None:
    data = load_causal("suite", attributes=8, rows=1000, seed=12, **settings)  # type: ignore[arg-type]
    fit = build("moments", starts=2).fit(data)
    assert fit.model_ == expected  # type: ignore[attr-defined]
    assert graph_scores(data.truth, fit.adjacency_matrix_)["f1"] > 0.6


def test_few_rows_in_one_place_leave_room_for_curves() -> None:
    data = load_causal("suite", generator="sines", attributes=15, rows=200, seed=3)
    fit = build("moments", starts=2).fit(data)
    assert graph_scores(data.truth, fit.adjacency_matrix_)["f1"] > 0.8


def test_curves_without_squares_and_cubes_are_doubted() -> None:
    data = load_causal("suite", generator="sines", attributes=5, rows=400, seed=3)
    for powers, doubted in ((True, False), (False, True)):
        made = expand(data.values, data.names, ["number"] * 5, 6, powers=powers)
        table = sum_table(made.features.T @ made.features, made.nodes, 400)
        found = search_sums(table, SumsSettings(starts=2))
        assert found.model == "additive"
        assert any("squares and cubes of 5 of 5" in one for one in doubts(found, data.names)) == doubted


def test_rows_mend_a_graph_of_lines() -> None:
    """Where noise is not normal, its whole shape tells directions that third and fourth moments of pairs do not."""
    data = load_causal("suite", generator="linear", noise="exponential", explained=0.95, seed=5)
    sums, rows = (build(name, starts=1).fit(data) for name in ("moments", "auto"))
    before, after = (graph_scores(np.asarray(data.truth), one.adjacency_matrix_)["f1"] for one in (sums, rows))
    assert after > before
    compared = {one["method"]: one for one in rows.compared_}  # type: ignore[attr-defined]
    assert list(compared) == ["moments", "lines"]
    assert compared["lines"]["kept"]
    assert compared["lines"]["evidence"] > compared["moments"]["evidence"]
    assert rows.model_ == "lingam"  # type: ignore[attr-defined]


def test_rows_keep_to_what_is_known_of_lines() -> None:
    data = load_causal("suite", generator="linear", noise="exponential", attributes=6, rows=400, seed=3)
    cause, effect = np.argwhere(data.truth)[0].tolist()
    fit = build("auto", starts=1, forbidden=[(data.names[cause], data.names[effect])]).fit(data)
    assert not fit.adjacency_matrix_[cause, effect]
    tiers = [list(data.names[3:]), list(data.names[:3])]
    fit = build("auto", starts=1, tiers=tiers).fit(data)
    assert not fit.adjacency_matrix_[:3, 3:].any()
