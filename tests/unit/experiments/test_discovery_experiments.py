"""The experiments of causal discovery: what their files ask for, what cells find, and what tables say of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from veracausa.data.causal import causal_data, checked
from veracausa.discovery.methods import build
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import InputError
from veracausa.experiments.cell import CellStore
from veracausa.experiments.discovery_cell import OURS, DiscoveryCell, discover, tables_of
from veracausa.experiments.discovery_experiment import DiscoveryReproduction, value_of
from veracausa.experiments.discovery_grid import discovery_places, row_cells
from veracausa.experiments.experiment import (
    EMPTY,
    SCALES,
    DiscoveryExperiment,
    known_experiments,
    load_experiment,
    resolve,
)
from veracausa.experiments.pictures import often_found
from veracausa.experiments.replicates import LocalEncoders, TwoLayerEncoders, _split, side_by_side
from veracausa.experiments.reproduce import reproduce_all

ITEMS = ("fig3", "fig4", "fig5", "fig6", "table1", "table2", "table3", "table4", "table5", "table6", "table7")
NAMES = [f"vfedcd/{item}" for item in ITEMS]
TREE = {
    "item": "Table 0",
    "title": "a toy",
    "columns": ["shd", "f1", "seconds"],
    "show": ["toy"],
    "rows": ["ours", "slow"],
    "graphs": [7, 8],
    "seeds": [0, 1],
    "time_limit": 3,
    "panels": {"toy": {"label": "Toy", "data": {"name": "synthetic", "attributes": 4, "edges": 3, "rows": 60}}},
    "methods": {
        "ours": {"label": "VFedCD", "name": "vfedcd", "settings": {"epochs": 1, "refit_epochs": 1}},
        "slow": {"label": "NO-TEARS", "name": "notears", "seeds": 1},
        "empty": {"label": "empty graph", "name": "empty"},
    },
    "published": {"toy": {"slow": {"f1": [0.3, 0.1]}}},
    "scales": {"smoke": {}},
}


def toy(**change: object) -> DiscoveryExperiment:
    experiment = resolve({**TREE, **change}, "toy", "smoke")
    assert isinstance(experiment, DiscoveryExperiment)
    return experiment


def cell(method: str = "vfedcd", **settings: object) -> DiscoveryCell:
    data = {"name": "synthetic", "attributes": 5, "edges": 6, "rows": 80}
    return DiscoveryCell(data, "seed", (2, 2, 1), method, settings, None, (7, 8), (0, 1))


def test_all_tables_and_figures_of_the_paper_are_there():
    assert [name for name in known_experiments() if name.startswith("vfedcd/")] == NAMES


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_asks_for_data_and_methods_that_exist(name: str, scale: str):
    experiment = load_experiment(name, scale)
    for place in discovery_places(experiment):
        assert experiment.rows_of(place.panel)[-1] == EMPTY
        for each in place.cells.values():
            source = each.data["name"]
            assert scale != "smoke" or source == "synthetic"
            checked(causal_data.options(source), source, {**each.data, each.vary: each.graphs[0]} | {"name": source})
            if source == "synthetic" and scale != "smoke":
                assert set(each.graphs) == set(range(200, 205)) or set(each.graphs) < set(range(200, 205)), place.row
            if each.method in OURS:
                VFedCD(**each.method_settings).settings()
            elif each.method != EMPTY:
                build(each.method, **each.method_settings)


def test_the_paper_is_beside_ours_where_the_data_are_its_own():
    table = load_experiment("vfedcd/table1", "small")
    assert table.published_at("d15", "vfedcd_paper", "f1") == (0.711, 0.013)
    assert table.published_at("d25", "vfedcd_paper", "shd") == (81.6, None)
    assert table.published_at("d25", "vfedcd", "shd") is None
    assert load_experiment("vfedcd/table1", "smoke").published_at("d15", "vfedcd_paper", "f1") is None


def test_tables_share_cells():
    def keys(name: str) -> set[str]:
        places = discovery_places(load_experiment(name, "small"))
        return {each.key for place in places for each in place.cells.values()}

    assert len(keys("vfedcd/table1") & keys("vfedcd/table2")) >= 10
    assert len(keys("vfedcd/table1") & keys("vfedcd/table5")) >= 10
    assert keys("vfedcd/fig3") & keys("vfedcd/table1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": ["owrs"]}, "no method is named 'owrs'; did you mean 'ours'?"),
        ({"columns": ["f2"]}, "no score is named 'f2'"),
        ({"show": ["moon"]}, "no panel is named 'moon'"),
        ({"published": {"toy": {"nun": {}}}}, "no method is named 'nun'"),
        ({"colums": []}, "colums"),
    ],
)
def test_a_typo_is_one_sentence(change: dict, said: str):
    with pytest.raises(InputError, match=said) as caught:
        toy(**change)
    assert "\n" not in str(caught.value)


def test_a_fit_side_by_side_is_one_cell_and_any_other_a_cell_of_its_own():
    experiment = toy()
    (ours,) = row_cells(experiment, "toy", "ours")
    assert (ours.graphs, ours.seeds, ours.time_limit) == ((7, 8), (0, 1), None)
    slow = row_cells(experiment, "toy", "slow")
    assert [(each.graphs, each.seeds, each.time_limit) for each in slow] == [((7,), (0,), 3), ((8,), (0,), 3)]
    federated = toy(
        methods={**TREE["methods"], "ours": {"label": "", "name": "vfedcd", "settings": {"engine": "federated"}}}
    )
    assert len(row_cells(federated, "toy", "ours")) == 4


def test_a_slow_method_may_have_fewer_graphs():
    methods = {**TREE["methods"], "slow": {**TREE["methods"]["slow"], "graphs": 1}}
    assert [each.graphs for each in row_cells(toy(methods=methods), "toy", "slow")] == [(7,)]


def test_a_row_may_have_parties_of_its_own():
    methods = {**TREE["methods"], "slow": {**TREE["methods"]["slow"], "parties": 2}}
    experiment = toy(methods=methods)
    assert [each.parties for each in row_cells(experiment, "toy", "slow")] == [2, 2]
    assert [each.parties for each in row_cells(experiment, "toy", "ours")] == [3]


def test_what_a_profile_or_a_default_fills_in_is_part_of_a_cell():
    # So that a changed profile or default never takes a result of the one before.
    assert cell().settings["discovery"]["method_settings"]["edge_worth"] == Settings().min_edge_gain
    assert cell(profile="paper", growth=0.006).key == cell(profile="paper").key != cell().key
    assert cell(profile="paper_repaired").key == cell(profile="paper").key == "b5fe30045463e6b81e4f"
    assert cell(profile="literal").key not in (cell().key, cell(profile="paper").key)
    assert cell("sdcd", epochs=600).key == cell("sdcd").key != cell("sdcd", epochs=601).key


def test_the_same_cell_finds_the_same_graphs_and_seeds_differ():
    first, again = (discover(cell(epochs=2, refit_epochs=2))["runs"] for _ in range(2))
    assert [run["edges"] for run in first] == [run["edges"] for run in again]
    assert [(run["graph"], run["seed"]) for run in first] == [(7, 0), (7, 1), (8, 0), (8, 1)]
    assert {run["scores"]["true_edges"] for run in first} == {6.0}
    assert first[0]["edges"] != first[1]["edges"]


def test_side_by_side_keeps_the_rows_apart_that_a_single_fit_keeps():
    table = tables_of(cell())[0]
    estimator = VFedCD(seed=3)
    none = np.zeros((5, 5), dtype=bool)
    rows, _, _ = estimator._prepared(estimator.settings(), table.data.values, table.data.names, none, none)
    train, kept, binary = _split(estimator.settings(), table, 3)
    assert np.array_equal(train, rows.train)
    assert np.array_equal(kept, rows.held_out)
    assert not binary.any()


def test_tables_that_are_not_alike_are_fitted_one_by_one(monkeypatch: pytest.MonkeyPatch):
    # As counts can be: a column of one graph is constant, in another one it is not.
    def with_a_constant(each: DiscoveryCell) -> list:
        tables = tables_of(each)
        values = tables[1].data.values.copy()
        values[:, 2] = 1.0
        return [tables[0], replace(tables[1], data=replace(tables[1].data, values=values))]

    quick = cell(epochs=1, refit_epochs=1)
    assert side_by_side(quick, [(table, 0) for table in tables_of(quick)]) is not None
    assert side_by_side(quick, [(table, 0) for table in with_a_constant(quick)]) is None
    monkeypatch.setattr("veracausa.experiments.discovery_cell.tables_of", with_a_constant)
    found = discover(quick)
    assert [(run["graph"], run["seed"]) for run in found["runs"]] == [(7, 0), (7, 1), (8, 0), (8, 1)]
    assert found["notes"][-1] == "graph 8: 1 of its columns are constant and take no part"
    assert not any(note.startswith("x") for note in found["notes"])


def test_columns_lie_where_their_party_says():
    table = tables_of(cell())[0]
    assert [len(columns) for columns in table.parties.values()] == [2, 2, 1]
    assert [name for columns in table.parties.values() for name in columns] == list(table.data.names)


def test_a_fit_as_named_parties_says_what_they_sent():
    names = {"clinic": ("x0", "x3"), "office": ("x1",)}
    apart = replace(cell(engine="federated", epochs=1, refit_epochs=1, searches=[]), parties=names, seeds=(0,))
    (table, _) = tables_of(apart)
    assert table.parties == {"clinic": ["x0", "x3"], "office": ["x1"]}
    scores = discover(replace(apart, graphs=(7,)))["runs"][0]["scores"]
    assert scores["messages"] > 10
    assert scores["megabytes"] > 0.01
    assert not {"messages", "megabytes"} & set(discover(cell(epochs=1, refit_epochs=1))["runs"][0]["scores"])


def test_a_local_encoder_never_sees_another_partys_column():
    owners = np.array([[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]])
    model = LocalEncoders(Settings(epochs=1, refit_epochs=1, width=3), owners, np.random.default_rng(0))
    before = model.weights.copy()
    rows = np.random.default_rng(1).normal(size=(2, 60, 5))
    model.fit(rows[:, :50], rows[:, 50:])
    assert model.weights.shape == (2, 5, 5, 9)
    for replicate, owner in enumerate(owners):
        for source in range(5):
            seen = np.flatnonzero(np.abs(before[replicate, source]).sum(0))
            assert seen.tolist() == list(range(3 * owner[source], 3 * owner[source] + 3))
            assert set(np.flatnonzero(np.abs(model.weights[replicate, source]).sum(0))) <= set(seen)
    assert not np.array_equal(before, model.weights)


def test_two_layer_encoders_of_two_parties_meet_in_the_sum_only():
    owners = np.array([[0, 0, 1, 1, 2]])
    model = TwoLayerEncoders(Settings(epochs=1, refit_epochs=1, width=3, depth=0), owners, np.random.default_rng(0))
    rows = np.random.default_rng(1).normal(size=(1, 60, 5))
    before = model.decoders.values["weight_0"].copy()
    model.fit(rows[:, :50], rows[:, 50:])
    assert not np.array_equal(before, model.decoders.values["weight_0"])

    def effect(changed: list[int]) -> np.ndarray:
        # What a target is expected to be moves by so much when these columns move.
        moved = rows.copy()
        moved[..., changed] += 1.0
        first, then = (model.decoders.predict(model.features(each)) for each in (rows, moved))
        return then - first

    # Columns of one party are mixed by its second layer; those of two parties only add up.
    model.weights = model.sees * np.random.default_rng(2).normal(size=model.weights.shape)
    assert np.allclose(effect([0, 2]), effect([0]) + effect([2]))
    assert not np.allclose(effect([0, 1]), effect([0]) + effect([1]))


def test_both_spreads_are_told_apart():
    runs = [
        {"graph": graph, "seed": seed, "seconds": 1.0, "scores": {"shd": value}}
        for graph, seed, value in ((7, 0, 4.0), (7, 1, 6.0), (8, 0, 10.0), (8, 1, 10.0))
    ]
    score = value_of("shd", runs)
    assert score.mean == 7.5
    assert score.over == pytest.approx((np.std([5.0, 10.0], ddof=1), np.std([4.0, 6.0], ddof=1) / 2))
    assert value_of("f1", runs).mean is None


def test_what_ran_out_of_time_is_shown_as_such_and_what_is_missing_is_counted(tmp_path: Path):
    experiment, store = toy(), CellStore(tmp_path)
    first, second = row_cells(experiment, "toy", "slow")
    run = {"graph": 7, "seed": 0, "seconds": 3.1, "limited": True, "scores": {"shd": 2.0, "f1": 0.5}, "edges": []}
    store.keep(first, {"runs": [run], "notes": [], "sortability": []})
    found = DiscoveryReproduction.begin(experiment, tmp_path / "out")
    found.gather(store, {second.key: "it diverged"})
    (texts,) = found.texts
    assert texts.head == ["", "SHD", "F1", "paper", "processor seconds a fit", "fits"]
    assert texts.body[1] == ["NO-TEARS ‡", "2.0", "0.500", "0.3 ± 0.1", "3.1", "1 of 2"]
    assert texts.body[0] == ["VFedCD", "–", "–", "", "–", "0 of 4"]
    assert found.tables[0].lines[1].why_not == "it diverged"
    assert "–: NO-TEARS: it diverged." in found.footnotes()


def test_an_edge_in_both_directions_is_never_drawn():
    runs = [{"edges": [["a", "b"], ["c", "a"]]}, {"edges": [["b", "a"], ["c", "a"]]}]
    assert often_found(runs) == {("c", "a"): 1.0}


@pytest.mark.draws
def test_a_tiny_experiment_leaves_tables_a_figure_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rows = 'rows = ["vfedcd", "notears", "sortnregress"]\nshow = ["d10"]\n'
    (tmp_path / "table1.toml").write_text(f'extends = "vfedcd/table1"\n{rows}')
    (tmp_path / "fig6.toml").write_text('extends = "vfedcd/fig6"\nrows = ["vfedcd"]\n')
    found = reproduce_all(["table1.toml", "fig6.toml"], "smoke", workers=1)
    assert not any(each.progress.failed or each.progress.unfit for each in found)
    out = tmp_path / "results/table1/smoke"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "VFedCD" in page
    assert "CausShield" not in page
    assert "by variance as generated" in page
    table = pl.read_parquet(out / "table.parquet")
    assert table["mean"].is_not_null().all()
    assert set(table["row"]) == {"vfedcd", "notears", "sortnregress", "empty"}
    empty = table.filter((pl.col("row") == "empty") & (pl.col("column") == "shd"))
    assert empty["mean"].to_list() == [6.0]
    assert json.loads((out / "environment.json").read_text())[0]["torch"]
    assert "edges at x0" in (tmp_path / "results/fig6/smoke/table.md").read_text(encoding="utf-8")
    again = reproduce_all(["table1.toml"], "smoke", workers=1, tell=lambda *_: pytest.fail("run twice"))
    assert again[0].texts == found[0].texts


def test_the_example_of_the_manual_runs_the_rows_it_names(tmp_path: Path):
    manual = (Path(__file__).parents[3] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    example = manual.partition("## Causal discovery")[2].partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "mine.toml").write_text(example)
    experiment = load_experiment(str(tmp_path / "mine.toml"), "small")
    assert {place.row for place in discovery_places(experiment)} == {"vfedcd", "mine", "sortnregress", "empty"}
    assert row_cells(experiment, "d15", "mine")[0].method_settings == {"width": 20}


def test_a_setting_of_a_job_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="extends it and change its methods"):
        reproduce_all(["vfedcd/table1"], "smoke", tmp_path, cells=tmp_path, overrides=["a.b=1"])
