"""A graph for other packages: attributes of edges, and no direction that the data do not tell."""

from __future__ import annotations

import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from told_graph import EDGES, NAMES, OPEN, fitted, written
from veracausa.discovery.export import as_dag, as_gml
from veracausa.errors import InputError

DIRECTED = [edge for edge in EDGES if edge != OPEN]


@pytest.mark.parametrize("kind", ["estimator", "run"])
def test_networkx_has_effects_and_marks_what_has_no_direction(kind: str, tmp_path: Path) -> None:
    graph = (fitted() if kind == "estimator" else written(tmp_path / "run")).to_networkx()
    assert set(graph.edges) == set(EDGES)
    assert graph.edges[OPEN]["directed"] == "no"
    assert "directed" not in graph.edges[DIRECTED[0]]
    assert graph.edges["age", "bmi"]["slope"] == pytest.approx(0.42)
    assert graph.edges["age", "bmi"]["shape"] == "rises"
    assert graph.edges["bmi", "crp"]["share"] == pytest.approx(0.5)
    assert "slope_in_units" not in graph.edges["bmi", "crp"], "units are not known between parties"


@pytest.mark.parametrize("to", ["to_networkx", "to_dowhy"])
def test_a_consumer_of_dags_gets_no_edge_without_direction_silently(to: str) -> None:
    method = fitted()
    with pytest.raises(InputError, match=r"age — bmi point.*undirected='member'.*'drop'") as error:
        getattr(method, to)(undirected="refuse")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="'best': is none of refuse, member, drop"):
        getattr(method, to)(undirected="best")


def test_refusing_is_what_dowhy_gets_by_default() -> None:
    with pytest.raises(InputError, match="age — bmi"):
        fitted().to_dowhy()


def test_a_long_list_of_edges_is_cut() -> None:
    graph = nx.DiGraph()
    graph.add_edges_from([("a", f"b{at}") for at in range(7)], directed="no")
    with pytest.raises(InputError, match="a — b4 and 2 more point"):
        as_dag(graph)


def test_member_and_drop() -> None:
    method = fitted()
    member, dropped = (method.to_networkx(undirected=how) for how in ("member", "drop"))
    assert set(member.edges) == set(EDGES)
    assert set(dropped.edges) == set(DIRECTED)
    assert set(dropped.nodes) == set(NAMES), "columns stay"
    assert nx.is_directed_acyclic_graph(member)
    assert not nx.get_edge_attributes(member, "directed")
    assert method.to_networkx().edges[OPEN]["directed"] == "no", "the graph itself is not changed"


def test_a_graph_with_all_directions_needs_no_choice() -> None:
    method = fitted(undirected_=np.zeros((4, 4), dtype=bool))
    back = nx.parse_gml(method.to_dowhy())
    assert set(back.edges) == set(EDGES)
    assert set(back.nodes) == set(NAMES)


@pytest.mark.parametrize("name", ["a.dot", "my.gml.column", "notes.txt", "graph {", "two\nlines"])
def test_a_name_that_dowhy_takes_for_a_file_is_refused(name: str) -> None:
    graph = nx.DiGraph([(name, "b")])
    with pytest.raises(InputError, match=r"rename it, or give dowhy the networkx graph"):
        as_gml(graph)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pgmpy.base", None)
    with pytest.raises(InputError, match="pip install pgmpy"):
        fitted().to_pgmpy(undirected="member")


def test_dowhy_takes_the_graph() -> None:
    dowhy = pytest.importorskip("dowhy", reason="needs dowhy (pip install dowhy)")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(200, 4)), columns=list(NAMES))
    frame["crp"] += 2 * frame["bmi"]
    model = dowhy.CausalModel(frame, "bmi", "crp", graph=fitted().to_dowhy(undirected="member"))
    found = model.estimate_effect(model.identify_effect(), method_name="backdoor.linear_regression")
    assert found.value == pytest.approx(2, abs=0.3)


def test_pgmpy_takes_the_graph() -> None:
    base = pytest.importorskip("pgmpy.base", reason="needs pgmpy (pip install pgmpy)")
    method = fitted()
    dag, partly = method.to_pgmpy(undirected="member"), method.to_pgmpy(undirected="pdag")
    assert isinstance(dag, base.DAG)
    assert (set(dag.edges), set(dag.nodes)) == (set(EDGES), set(NAMES))
    assert isinstance(partly, base.PDAG)
    assert set(partly.directed_edges) == set(DIRECTED)
    assert {frozenset(edge) for edge in partly.undirected_edges} == {frozenset(OPEN)}
    with pytest.raises(InputError, match="age — bmi"):
        method.to_pgmpy()
    alone = fitted(adjacency_matrix_=np.zeros((4, 4), dtype=bool), undirected_=np.zeros((4, 4), dtype=bool))
    assert set(alone.to_pgmpy().nodes) == set(NAMES)
