"""The suite of generators as an experiment: tuning apart from reporting, an overview, and a tiny run of all of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from veracausa.data.causal import causal_data, checked
from veracausa.data.causal.mechanisms import Generator
from veracausa.discovery.methods import build
from veracausa.experiments.discovery_grid import discovery_places
from veracausa.experiments.discovery_overview import overview_tables
from veracausa.experiments.experiment import EMPTY, SCALES, DiscoveryExperiment, load_experiment, resolve
from veracausa.experiments.reproduce import reproduce
from veracausa.experiments.table import Line, PanelTable, Value

SUITE = "discovery/suite"


def suite(scale: str) -> DiscoveryExperiment:
    experiment = load_experiment(SUITE, scale)
    assert isinstance(experiment, DiscoveryExperiment)
    return experiment


@pytest.mark.parametrize("scale", SCALES)
def test_it_asks_for_data_and_methods_that_exist_and_reports_no_tuning_graph(scale: str) -> None:
    for place in discovery_places(suite(scale)):
        for cell in place.cells.values():
            source = cell.data["name"]
            checked(causal_data.options(source), source, {**cell.data, cell.vary: cell.graphs[0]} | {"name": source})
            assert scale != "smoke" or source == "suite"
            if source in ("suite", "bnlearn"):
                assert min(cell.graphs) >= 1000, f"{place.panel}: graphs 0 to 19 are for tuning"
            if cell.method != EMPTY:
                build(cell.method, **cell.method_settings)


def test_tuning_sees_no_reporting_graph_and_no_file() -> None:
    for place in discovery_places(suite("tuning")):
        for cell in place.cells.values():
            assert cell.data["name"] == "suite"
            assert max(cell.graphs) < 20


def test_small_has_every_generator_and_paper_every_size() -> None:
    small, paper = suite("small"), suite("paper")
    drawn = [small.panels[panel].data for panel in small.show if small.panels[panel].data["name"] == "suite"]
    assert {data["generator"] for data in drawn} == set(get_args(Generator))
    assert {data.get("explained") for data in drawn} >= {0.95, 0.8, 0.5, 0.3}
    assert {data.get("rows", 1000) for data in drawn} == {1000}
    whole = [paper.panels[panel].data for panel in paper.show]
    assert {data.get("attributes", 15) for data in whole} >= {10, 15, 30, 50, 100}
    assert {data.get("rows", 1000) for data in whole} >= {200, 1000, 3000, 10_000}
    assert {data["name"] for data in whole} == {"suite", "sachs", "syntren", "bnlearn"}


def test_an_overview_has_means_of_groups_only_where_a_method_has_all_of_them() -> None:
    tree = {
        "item": "Suite",
        "title": "a toy",
        "columns": ["f1"],
        "overview": ["f1"],
        "show": ["one", "two", "alone"],
        "rows": ["good", "lazy"],
        "panels": {
            "one": {"label": "One", "group": "both", "data": {"name": "suite"}},
            "two": {"label": "Two", "group": "both", "data": {"name": "suite"}},
            "alone": {"label": "Alone", "group": "single", "data": {"name": "suite"}},
        },
        "methods": {
            "good": {"label": "Good", "name": "cam"},
            "lazy": {"label": "Lazy", "name": "boss"},
            "empty": {"label": "empty graph", "name": "empty"},
        },
        "scales": {"smoke": {}},
    }
    experiment = resolve(tree, "toy", "smoke")
    assert isinstance(experiment, DiscoveryExperiment)

    def table(name: str, good: float, lazy: float | None) -> PanelTable:
        lines = [Line("good", "Good", None, {"f1": Value(good)}), Line("lazy", "Lazy", None, {"f1": Value(lazy)})]
        return PanelTable(name, experiment.label_of(name), "", [*lines, Line(EMPTY, "", None, {"f1": Value(0.0)})])

    tables = [table("one", 0.8, 0.4), table("two", 0.6, None), table("alone", 0.1, 0.2)]
    (found,) = overview_tables(experiment, tables, {"one": {"variance": 0.5, "raw variance": 0.9, "r2": 0.7}})
    assert found.head[3:] == ["Good", "Lazy"]
    assert found.body == [
        ["One", "0.90", "0.70", "0.800", "0.400"],
        ["Two", "–", "–", "0.600", "–"],
        ["mean: both", "", "", "0.700", "–"],
        ["Alone", "–", "–", "0.100", "0.200"],
    ]


def test_the_smoke_scale_runs(tmp_path: Path) -> None:
    found = reproduce(SUITE, "smoke", tmp_path / "out", cells=tmp_path / "cells", workers=1)
    assert not found.progress.failed
    assert not found.progress.unfit
    text = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "Overview: F1, undirected half" in text
    assert "R²-sortability" in text
    assert "VFedCD (anonymous" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    by_row = {line.row: line for line in found.tables[1].lines}
    assert by_row["boss"].values["partial_f1"].mean is not None
    assert by_row[EMPTY].values["f1"].mean == 0
