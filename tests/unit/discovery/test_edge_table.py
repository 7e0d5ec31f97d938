"""What a run's files say of its edges: directions, effects, how sure they are; files of earlier versions still open."""

from __future__ import annotations

import json
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from told_graph import EDGES, NAMES, between_parties, fitted, written
from veracausa.discovery.edge_table import EDGE_FIELDS, finite, found_edges, read_rows
from veracausa.discovery.job import read_edges
from veracausa.discovery.residual_tests import NOT_HERE
from veracausa.errors import InputError


def rows_of(**changes: object) -> dict[tuple[str, str], dict[str, object]]:
    return {(row["cause"], row["effect"]): row for row in found_edges(fitted(**changes), NAMES, {})}


def test_a_table_of_edges_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    assert {(row["cause"], row["effect"]): row for row in run.edges} == rows_of() | {
        ends: {**row, "cause_party": "party", "effect_party": "party"} for ends, row in rows_of().items()
    }
    assert (tmp_path / "run" / "edges.csv").read_text().splitlines()[0] == ",".join(EDGE_FIELDS)


def test_directions_effects_and_margins_stand_in_the_row() -> None:
    rows = rows_of()
    assert {ends: row["directed"] for ends, row in rows.items()} == {
        ("age", "bmi"): "no",
        ("bmi", "crp"): "yes",
        ("sex", "crp"): "yes",
    }
    assert rows["age", "bmi"]["margin"] is None, "no direction, no margin"
    assert rows["bmi", "crp"]["margin"] == 8.25
    assert rows["sex", "crp"]["margin"] == math.inf, "known beforehand"
    assert rows["sex", "crp"]["slope"] is None, "categories have no slope"
    assert rows["age", "bmi"]["slope_in_units"] == 0.11


def test_resamples_tell_an_edge_from_its_direction() -> None:
    skeleton = np.full((4, 4), 0.9)
    rows = rows_of(confidence_=np.full((4, 4), 0.45), skeleton_confidence_=skeleton, bootstrap=20)
    assert rows["bmi", "crp"]["confidence"] == 0.45
    assert rows["bmi", "crp"]["direction_confidence"] == pytest.approx(0.5)
    assert rows["age", "bmi"]["confidence"] == 0.9, "an edge without a direction counts either way"
    never = rows_of(confidence_=np.zeros((4, 4)), skeleton_confidence_=np.zeros((4, 4)))
    assert never["bmi", "crp"]["direction_confidence"] is None


def test_the_summary_has_what_the_fit_tells(tmp_path: Path) -> None:
    summary = written(tmp_path / "run", truth=True, parties=True, epsilon=4.0).summary
    assert summary["undirected"] == [["age", "bmi"]]
    assert summary["explained"] == {"age": 0.0, "bmi": 0.05, "crp": 0.56, "sex": None}
    assert summary["model"] == "additive"
    assert summary["assumes"][1] == "no cycle"
    assert summary["effects"][2]["slope"] is None
    assert summary["announced"] == {"seconds": 6.2, "bytes": 4_100_000}
    assert summary["hidden_causes"] == [{"columns": ["age", "sex"], "correlation": -0.21}]
    assert summary["privacy"]["opened_to"] == ["validator"]
    assert summary["privacy"]["epsilon"] == 4.0
    assert summary["bytes_sent"] == 6_000_000
    assert summary["skeleton_f1"] == 1.0
    assert summary["partial_f1"] == pytest.approx(2.5 / 3)
    assert summary["warnings"]
    assert summary["notes"] == ["bmi: 3 values are missing", NOT_HERE]
    json.dumps(summary, allow_nan=False)


def test_sums_opened_to_all_are_said_so(tmp_path: Path) -> None:
    run = written(tmp_path / "run", parties=True, **between_parties(receiver="all"))
    assert run.summary["privacy"]["opened_to"] == ["clinic", "lab"]
    assert written(tmp_path / "alone").summary["privacy"] is None, "in one place nothing is opened"


def test_graphml_marks_what_has_no_direction_and_reads_back(tmp_path: Path) -> None:
    graph = nx.read_graphml(written(tmp_path / "run", parties=True).path / "graph.graphml")
    assert set(graph.edges) == set(EDGES)
    assert graph.edges["age", "bmi"]["directed"] == "no"
    assert graph.edges["bmi", "crp"]["margin"] == 8.25
    assert "margin" not in graph.edges["sex", "crp"], "infinite: known beforehand"
    assert graph.nodes["crp"]["party"] == "lab"


def test_a_folder_of_an_earlier_version_opens(tmp_path: Path) -> None:
    run = written(tmp_path / "run", truth=True)
    before = "cause,effect,strength,confidence,cause_party,effect_party\nage,bmi,0.35,,party,party\n"
    (run.path / "edges.csv").write_text(before, encoding="utf-8")
    told = {"method", "edges", "attributes", "rows", "seconds", "threshold", "parties", "warnings", "notes", "reveal"}
    summary = {name: value for name, value in run.summary.items() if name in told}
    (run.path / "summary.json").write_text(json.dumps({**summary, "edges": 1}), encoding="utf-8")
    assert run.edges == [
        {
            "cause": "age",
            "effect": "bmi",
            "strength": 0.35,
            "confidence": None,
            "cause_party": "party",
            "effect_party": "party",
        }
    ]
    page = run.report().read_text(encoding="utf-8")
    assert "1 causal edge among 4 attributes" in page
    assert "What is certain" not in page


def test_a_run_s_edges_are_required_only_if_they_have_a_direction(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    with pytest.raises(InputError, match=r"age — bmi has no direction \(directed = no\); remove its row"):
        read_edges(run.path / "edges.csv")
    text = (run.path / "edges.csv").read_text(encoding="utf-8").replace(",no,", ",yes,")
    (run.path / "edges.csv").write_text(text, encoding="utf-8")
    assert set(read_edges(run.path / "edges.csv")) == set(EDGES)


def test_names_that_a_spreadsheet_would_compute_come_back(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("cause,effect,strength,confidence\n'=a,b,0.5,\n", encoding="utf-8")
    assert read_rows(path)[0]["cause"] == "=a"


def test_finite() -> None:
    assert finite({"a": [np.float64("nan"), math.inf, np.int64(3)], "b": (True, "x", None)}) == {
        "a": [None, None, 3],
        "b": [True, "x", None],
    }
