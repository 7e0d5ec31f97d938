"""What every method keeps to: scikit-learn's contract, pgmpy's names, constraints and bad tables."""

from __future__ import annotations

import time
from dataclasses import dataclass

import networkx as nx
import numpy as np
import polars as pl
import pytest
from refusals import Names
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from veracausa.discovery.base import CausalDiscovery, clock
from veracausa.discovery.methods import build, methods
from veracausa.errors import InputError

STRENGTHS = np.array([[5.0, 0.9, 0.0], [0.5, 0.0, 0.4], [0.1, 0.0, 0.0]])


@dataclass(kw_only=True, eq=False, repr=False)
class Fixed(CausalDiscovery):
    """Learns nothing: the same strengths for every table."""

    factor: float = 1.0

    def learn(self, data, time_is_up):
        self._log(loss=1)
        d = data.values.shape[1]
        return self.factor * STRENGTHS[:d, :d]


TABLE = np.random.default_rng(0).normal(size=(20, 3))


def test_parameters_clone():
    method = Fixed(factor=2.0, threshold=0.2)
    copy = clone(method)
    assert copy.get_params() == method.get_params()
    assert copy.set_params(factor=3.0).factor == 3.0
    assert "factor=2.0" in repr(method)


def test_a_limit_may_count_what_the_processor_does():
    up = clock(0.05, "processor")
    time.sleep(0.1)
    assert not up()
    busy = time.process_time() + 0.1
    while time.process_time() < busy:
        pass
    assert up()
    assert clock(0.0)()
    assert not clock(None)()


def test_what_a_fit_leaves():
    method = Fixed().fit(pl.DataFrame(TABLE, schema=["a", "b", "c"]))
    assert method.n_features_in_ == 3
    assert method.feature_names_in_.tolist() == ["a", "b", "c"]
    assert method.adjacency_matrix_.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert method.strengths_.diagonal().tolist() == [0, 0, 0]
    assert not method.thresholded_is_dag_
    assert method.thresholded_[1, 0]
    assert method.history_ == [{"loss": 1.0}]
    graph = method.causal_graph_
    assert nx.is_directed_acyclic_graph(graph)
    assert graph.edges["a", "b"]["strength"] == 0.9


def test_the_least_threshold_without_a_cycle():
    method = Fixed(threshold="acyclic").fit(TABLE)
    # Strengths 0.9 and 0.5 close a cycle, so only the stronger is left.
    assert method.threshold_ == 0.9
    assert method.thresholded_is_dag_
    assert method.adjacency_matrix_.sum() == 1


def test_arrays_and_frames_give_the_same():
    array, frame = Fixed().fit(TABLE), Fixed().fit(pl.DataFrame(TABLE))
    assert np.array_equal(array.adjacency_matrix_, frame.adjacency_matrix_)
    assert array.feature_names_in_.tolist() == ["x0", "x1", "x2"]


def test_pandas_frames_with_missing_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE, columns=["a", "b", "c"])
    frame["c"] = pandas.array([None, *range(19)], dtype="Int64")
    method = Fixed().fit(frame)
    assert method.notes_[0] == "c: 1 missing values set to the median"


def test_categories_taken_as_a_scale_are_warned_of():
    frame = pl.DataFrame({"a": TABLE[:, 0], "city": ["Bonn", "Oslo", "Rome", "Oslo"] * 5, "c": TABLE[:, 2]})
    method = Fixed().fit(frame)
    assert [said.split(" holds")[0] for said in method.warnings_ if "arbitrary order" in said] == ["city"]
    assert method.feature_names_in_.tolist() == ["a", "city", "c"]
    two = frame.with_columns(city=pl.Series(["Bonn", "Oslo"] * 10))
    assert not [said for said in Fixed().fit(two).warnings_ if "arbitrary order" in said]


def test_moments_takes_categories_and_gaps_as_they_are():
    rng = np.random.default_rng(0)
    city, gaps = rng.integers(0, 4, 400), rng.random(400) < 0.1
    income = np.array([0.0, 2.0, -1.0, 1.0])[city] + 0.5 * rng.normal(size=400)
    found = []
    for names in (["Bonn", "Oslo", "Paris", "Rome"], ["d", "a", "c", "b"]):
        words = [None if gap else names[at] for at, gap in zip(city, gaps, strict=True)]
        frame = pl.DataFrame({"city": words, "income": income, "age": rng.permutation(income)})
        method = build("moments").fit(frame)
        assert not [said for said in method.warnings_ if "arbitrary order" in said]
        assert f"city: {gaps.sum()} missing values; sums use the rows where both columns have one" in method.notes_
        found.append(method.strengths_[0, 1] + method.strengths_[1, 0])
    assert found[0] > 0
    assert found[0] == pytest.approx(found[1]), "what a category is called decides nothing"


def test_polars_nulls_are_missing_values():
    frame = pl.DataFrame({"a": [1, None, 3, 5], "b": [1.0, 2.0, 2.5, 0.0]})
    assert Fixed().fit(frame).notes_[0] == "a: 1 missing values set to the median"


def test_a_constant_column_stays_without_edges():
    table = TABLE.copy()
    table[:, 0] = 1
    method = Fixed().fit(table)
    assert method.adjacency_matrix_.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert "x0: constant" in method.notes_[0]


def test_constraints_are_kept():
    method = Fixed(required=[("x1", "x0")], forbidden=[(1, 2)]).fit(TABLE)
    assert method.adjacency_matrix_.tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    with pytest.raises(InputError, check=Names("required", "x7")):
        Fixed(required=[("x7", "x0")]).fit(TABLE)
    with pytest.raises(InputError, match="required: edges are pairs"):
        Fixed(required=[("x0", "x1"), ("x2",)]).fit(TABLE)
    with pytest.raises(InputError, match="form a cycle"):
        Fixed(required=[("x0", "x1"), ("x1", "x0")]).fit(TABLE)


@pytest.mark.parametrize(
    "truth",
    [
        [("x1", "x0"), ("x1", "x2")],
        np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]]),
        nx.DiGraph([("x1", "x0"), ("x1", "x2")]),
        pl.DataFrame([[0, 1, 0], [0, 0, 0], [0, 1, 0]]),
        {"x1": ["x0", "x2"]},
    ],
)
def test_score_takes_every_form_of_a_graph(truth):
    method = Fixed().fit(TABLE)
    assert method.score(truth) == 1
    assert method.score(truth, metric="f1") == 0.5
    with pytest.raises(InputError, match="did you mean 'f1'"):
        method.score(truth, metric="f")


def test_unfitted_methods_say_so():
    with pytest.raises(NotFittedError):
        Fixed().score([("x0", "x1")])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (np.zeros(3), "is no table"),
        (np.zeros((3, 1)), "1 column is too few"),
        ({"bank": np.zeros((9, 2)), "shop": np.zeros((9, 2))}, "a mapping is no table; give one frame of all columns"),
        ([["a", "b"]], "array of numbers"),
        (pl.DataFrame({"a": [1.0, 2.0], "b": [[1], [2]]}), "b: left out, it holds values of the type List"),
    ],
)
def test_bad_tables_are_refused(table, said):
    with pytest.raises(InputError, match=said):
        Fixed().fit(table)


def test_methods_are_built_by_name_with_checked_settings():
    assert build("sortnregress", by="r2").by == "r2"
    with pytest.raises(InputError, match="did you mean 'threshold'"):
        build("sortnregress", treshold=1)
    with pytest.raises(InputError, match="no method is named 'sortregress'; did you mean"):
        build("sortregress")


@pytest.mark.parametrize("name", methods.names())
def test_every_method_clones_with_its_parameters(name):
    method = build(name, threshold=0.123)
    assert clone(method).get_params() == method.get_params()
    assert method.get_params()["threshold"] == 0.123
