"""The generator and the loaders, against what is known of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import Names

from veracausa.data.causal import CausalData, causal_data, load_causal
from veracausa.data.causal.bnlearn import read_bif
from veracausa.data.causal.parties import block_sizes, dealt, held_by, owners
from veracausa.data.causal.synthetic import random_dag, simulate
from veracausa.discovery.graphs import is_acyclic
from veracausa.errors import InputError
from veracausa.metrics.graphs import empty_graph_shd

FILES = Path(os.environ.get("VERACAUSA_DATA", "/nowhere"))
real = pytest.mark.skipif(not (FILES / "sachs").is_dir(), reason="VERACAUSA_DATA does not hold the causal data")


def test_every_source_is_found_by_name():
    assert causal_data.names() == ["bnlearn", "patients", "pima", "sachs", "suite", "synthetic", "syntren", "table"]


@given(st.integers(2, 9), st.data())
def test_a_random_graph_has_exactly_its_edges(d, data):
    edges = data.draw(st.integers(0, d * (d - 1) // 2))
    dag = random_dag(d, edges, np.random.default_rng(data.draw(st.integers(0, 9))))
    assert dag.sum() == edges
    assert is_acyclic(dag)


def test_roots_and_noise_have_deviation_one_half():
    truth = np.array([[0, 1], [0, 0]], dtype=bool)
    values = simulate(truth, 20_000, np.random.default_rng(0))
    assert values[:, 0].std() == pytest.approx(0.5, rel=0.02)
    # Neighbours in the cause share the mechanism's value, so half their squared difference is the noise's variance.
    steps = np.diff(values[np.argsort(values[:, 0]), 1])
    assert np.sqrt((steps**2).mean() / 2) == pytest.approx(0.5, rel=0.03)


def test_generated_columns_are_standardised_and_repeat():
    data = load_causal("synthetic", attributes=6, edges=9, rows=500, seed=3)
    assert data.truth.sum() == 9
    assert np.abs(data.values[:400].mean(axis=0)).max() < 1e-12
    assert data.values[:400].std(axis=0) == pytest.approx(1)
    assert np.array_equal(data.values, load_causal("synthetic", attributes=6, edges=9, rows=500, seed=3).values)
    other = load_causal("synthetic", attributes=6, edges=9, rows=500, seed=4)
    assert not np.array_equal(data.truth, other.truth)


@pytest.mark.parametrize("violation", ["multiplicative", "poisson", "non_iid"])
def test_violations_change_the_noise_and_say_so(violation):
    setting = {"attributes": 5, "edges": 6, "rows": 300, "standardise": False, "seed": 1}
    plain, other = load_causal("synthetic", **setting), load_causal("synthetic", violation=violation, **setting)
    roots = ~plain.truth.any(axis=0)
    assert np.array_equal(plain.truth, other.truth)
    assert not np.allclose(plain.values[:, ~roots], other.values[:, ~roots])
    assert other.notes != plain.notes
    counts = other.values[:, ~roots]
    assert bool((counts == counts.round()).all()) == (violation == "poisson")


def test_noise_of_the_non_iid_kind_grows_with_the_parent():
    truth = np.array([[0, 1], [0, 0]], dtype=bool)
    values = simulate(truth, 20_000, np.random.default_rng(0), "non_iid")
    steps = np.abs(np.diff(values[np.argsort(values[:, 0]), 1]))
    assert steps[-5000:].mean() > 3 * steps[:5000].mean()


def test_hidden_columns_leave_the_induced_graph():
    whole = load_causal("synthetic", attributes=8, edges=20, rows=50, standardise=False)
    seen = load_causal("synthetic", attributes=8, edges=20, rows=50, standardise=False, latent=3)
    kept = [whole.names.index(name) for name in seen.names]
    assert len(kept) == 5
    assert np.array_equal(seen.truth, whole.truth[np.ix_(kept, kept)])
    assert np.array_equal(seen.values, whole.values[:, kept])
    assert "induced" in seen.notes[-1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"edges": 200}, "105 pairs"),
        ({"latent": 15}, "at least one must stay"),
        ({"atributes": 3}, "did you mean 'attributes'"),
        ({"violation": "cauchy"}, "violation"),
    ],
)
def test_wrong_settings_are_named(settings, said):
    with pytest.raises(InputError, match=said):
        load_causal("synthetic", **settings)


def test_parties_hold_blocks_of_permuted_columns():
    data = load_causal("synthetic", attributes=15, edges=20, rows=20)
    permuted, blocks = dealt(data, [3, 3, 9], seed=1)
    assert [len(block) for block in blocks] == [3, 3, 9]
    assert sorted(at for block in blocks for at in block) == list(range(15))
    assert permuted.names != data.names
    back = [permuted.names.index(name) for name in data.names]
    assert np.array_equal(permuted.values[:, back], data.values)
    assert np.array_equal(permuted.truth[np.ix_(back, back)], data.truth)
    assert block_sizes(30, 4) == (8, 8, 7, 7)
    assert dealt(data, 3, seed=1)[1] == (tuple(range(5)), tuple(range(5, 10)), tuple(range(10, 15)))
    with pytest.raises(InputError, match="do not share out 15"):
        dealt(data, [3, 3], seed=1)


@pytest.mark.parametrize(
    ("parties", "said"),
    [
        ({"a": ["x"], "b": ["x", "y"]}, "named by 'a' and 'b'"),
        ({"a": ["x"]}, "'y' belongs to no party"),
        ({"a": []}, "columns 'x', 'y' belong to no party"),
        ({"a": ["x", "u", "v"]}, "columns 'u', 'v', which are not in the data"),
        ({"a": ["x", "y", "z"]}, "not in the data"),
    ],
)
def test_columns_of_two_or_no_parties_are_refused(parties, said):
    assert owners({"a": ["y"], "b": ["x"]}, ("x", "y")) == ("b", "a")
    with pytest.raises(InputError, match=said):
        owners(parties, ("x", "y"))


def test_named_parties_hold_their_columns_and_a_note_says_which_nobody_holds():
    data = CausalData(np.arange(8.0).reshape(2, 4), ("a", "b", "c", "d"), np.triu(np.ones((4, 4), dtype=bool), 1))
    kept, blocks = held_by(data, {"left": ("d", "a"), "right": ("c",)})
    assert (kept.names, blocks) == (("d", "a", "c"), ((0, 1), (2,)))
    assert kept.values[0].tolist() == [3.0, 0.0, 2.0]
    assert kept.truth is not None
    assert np.argwhere(kept.truth).tolist() == [[1, 0], [1, 2], [2, 0]]
    assert kept.notes == ("left holds d, a; right holds c; nobody holds b, which take no part",)
    with pytest.raises(InputError, match="'right' names column 'e'"):
        held_by(data, {"left": ("a",), "right": ("e",)})
    with pytest.raises(InputError, match="'a' is named by 'left' and 'right'"):
        held_by(data, {"left": ("a",), "right": ("a",)})


NETWORK = """network unknown { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 3 ] { dry, damp, wet }; }
probability ( rain ) { table 0.2, 0.8; }
probability ( wet | rain ) { (yes) 0.0, 0.1, 0.9; default 0.7, 0.3, 0.0; }
"""


def test_a_network_is_read_and_drawn_from(tmp_path):
    path = tmp_path / "garden.bif"
    path.write_text(NETWORK)
    network = read_bif(path)
    assert network.names == ("rain", "wet")
    assert network.adjacency().tolist() == [[False, True], [False, False]]
    rows = network.sample(20_000, np.random.default_rng(0))
    assert (rows[:, 0] == 0).mean() == pytest.approx(0.2, abs=0.01)
    rain = rows[rows[:, 0] == 0, 1]
    assert set(rain) == {1, 2}
    assert (rain == 2).mean() == pytest.approx(0.9, abs=0.02)
    assert set(rows[rows[:, 0] == 1, 1]) == {0, 1}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("(yes) 0.0, 0.1, 0.9; default 0.7, 0.3, 0.0;", "(yes) 0.0, 0.1, 0.9;", "rows are missing"),
        ("(yes)", "(maybe)", r"row \(maybe\) does not fit"),
        ("0.1, 0.9", "0.1, 0.5", "add up"),
        ("probability ( rain )", "probability ( snow )", "no variable 'snow'"),
        ("probability ( rain ) { table 0.2, 0.8; }", "", "'rain' has no probabilities"),
    ],
)
def test_a_broken_network_is_refused(tmp_path, old, new, said):
    path = tmp_path / "broken.bif"
    path.write_text(NETWORK.replace(old, new))
    with pytest.raises(InputError, match=said):
        read_bif(path)


def test_a_table_of_ones_own_with_words_and_truth(tmp_path):
    (tmp_path / "people.csv").write_text("id,age,smokes,x\n7,30,no,1.5\n8,40,yes,\n9,50,no,2\n")
    (tmp_path / "edges.csv").write_text("source,target\nage,x\nsmokes,x\n")
    data = load_causal("table", path=str(tmp_path / "people.csv"), truth=str(tmp_path / "edges.csv"), id="id")
    assert data.names == ("age", "smokes", "x")
    assert data.values[:, 1].tolist() == [0, 1, 0]
    assert np.isnan(data.values[1, 2])
    assert data.truth[:, 2].tolist() == [True, True, False]
    assert data.notes == ("smokes: words numbered from 0: no, yes",)
    with pytest.raises(InputError, match="no column 'aeg'; did you mean 'age'"):
        load_causal("table", path=str(tmp_path / "people.csv"), columns=("aeg",))
    (tmp_path / "edges.csv").write_text("source,target\nage,income\n")
    with pytest.raises(InputError, check=Names("edges.csv", "income")):
        load_causal("table", path=str(tmp_path / "people.csv"), truth=str(tmp_path / "edges.csv"))


def test_a_missing_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("VERACAUSA_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"observational_853.csv is missing .*set VERACAUSA_DATA"):
        load_causal("sachs")


@real
@pytest.mark.parametrize(("cells", "rows"), [("observational", 853), ("pooled", 7466), ("interventional", 5846)])
@pytest.mark.parametrize("edges", [17, 20])
def test_sachs(cells, rows, edges):
    data = load_causal("sachs", cells=cells, graph=edges)
    assert data.values.shape == (rows, 11)
    assert empty_graph_shd(data.truth) == edges
    assert is_acyclic(data.truth)
    if cells != "interventional":
        assert np.allclose(load_causal("sachs", cells=cells, log=True).values, np.log(data.values))


@real
def test_syntren():
    counts = []
    for number in range(1, 11):
        data = load_causal("syntren", number=number)
        assert data.values.shape == (500, 20)
        assert is_acyclic(data.truth)
        counts.append(empty_graph_shd(data.truth))
    assert np.mean(counts) == 23.5


@real
def test_pima_takes_impossible_zeros_as_missing():
    kept = load_causal("pima", missing="keep")
    assert kept.values.shape == (768, 9)
    lacking = dict(zip(kept.names, np.isnan(kept.values).sum(axis=0), strict=True))
    assert {name: count for name, count in lacking.items() if count} == {
        "Glucose": 5,
        "BloodPressure": 35,
        "SkinThickness": 227,
        "Insulin": 374,
        "BMI": 11,
    }
    assert not np.isnan(load_causal("pima").values).any()
    assert len(load_causal("pima", missing="drop").values) == 392


@real
@pytest.mark.parametrize(("network", "nodes", "edges"), [("asia", 8, 8), ("alarm", 37, 46), ("sachs", 11, 17)])
def test_bnlearn(network, nodes, edges):
    data = load_causal("bnlearn", network=network, rows=50)
    assert data.values.shape == (50, nodes)
    assert data.truth.sum() == edges
    with pytest.raises(InputError, match="did you mean 'alarm'"):
        load_causal("bnlearn", network="alarn")


def test_nodes_of_three_categories_are_nominal(monkeypatch, tmp_path):
    (tmp_path / "bnlearn").mkdir()
    (tmp_path / "bnlearn" / "garden.bif").write_text(NETWORK)
    monkeypatch.setenv("VERACAUSA_DATA", str(tmp_path))
    assert load_causal("bnlearn", network="garden", rows=50).nominal == ("wet",)
    assert load_causal("bnlearn", network="garden", rows=50, as_numbers=True).nominal == ()


def test_fewer_rows_are_noted():
    data = CausalData(np.zeros((5, 2)), ("a", "b"))
    assert data.head(None) is data
    assert data.head(3).notes == ("the first 3 of 5 rows",)


def test_a_word_among_numbers_is_refused_with_its_row(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{n if n != 7 else 'abc'},{n * n}\n" for n in range(30)))
    with pytest.raises(InputError, check=Names("t.csv", "a", "abc", "8")):
        load_causal("table", path=str(path))
    assert load_causal("table", path=str(path), missing=["", "abc"]).values.shape == (30, 2)
    assert load_causal("table", path=str(path), categorical=["a"], categories=40).names == ("a", "b")
    path.write_text("a;b\n" + "".join(f"{n},5;{n * n}\n" for n in range(30)))
    with pytest.raises(InputError, match=r"has a decimal comma; set data\.decimal"):
        load_causal("table", path=str(path), separator=";")
    assert load_causal("table", path=str(path), separator=";", decimal=",").values[1].tolist() == [1.5, 1.0]


def test_words_that_name_the_rows_are_refused_with_the_settings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,b\n" + "".join(f"p{n},{n * n}\n" for n in range(30)))
    with pytest.raises(InputError, match=r"--set data\.columns=b.*--set data\.id=id"):
        load_causal("table", path=str(path), columns=("id", "b"))
