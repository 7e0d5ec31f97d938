"""Residuals against causes: silent where noise is added, loud where it is multiplied, honest where nobody can say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veracausa.data.causal import load_causal
from veracausa.discovery.discover import discover
from veracausa.discovery.methods import build
from veracausa.discovery.residual_tests import FEWEST, LEVEL, NOT_HERE, rejections, residual_tests
from veracausa.metrics.independence import hsic

NAMES = ("a", "b", "c")
FORK = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)


def fork(multiplied: bool, rows: int = 300, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a, *noise = rng.normal(size=(3, rows))
    columns = [a]
    for own in noise:
        mean = np.sin(1.5 * a) + 0.5 * a
        columns.append(mean * (1 + own) if multiplied else mean + 0.5 * own)
    return np.column_stack(columns)


def test_hsic_keeps_its_level_and_sees_what_correlation_does_not():
    rng = np.random.default_rng(1)
    chances = [hsic(*rng.normal(size=(2, 80, 1)))[1] for _ in range(200)]
    # Of 200 draws at 5 % ten are expected; more than 20 have a chance below .002.
    assert sum(chance < 0.05 for chance in chances) <= 20
    assert 0.35 < np.median(chances) < 0.65
    x = rng.normal(size=(200, 1))
    assert hsic(x, x**2 + 0.5 * rng.normal(size=x.shape))[1] < 1e-4
    assert hsic(x, np.zeros_like(x))[1] == 1.0


def test_added_noise_on_the_true_graph_is_not_rejected_more_often_than_the_level_says():
    # Eight graphs of the suite, four generators: at 1 % a graph, two or more have a chance of .003.
    warned = 0
    for generator in ("gp_additive", "linear", "sines", "paper"):
        for seed in range(2):
            data = load_causal("suite", generator=generator, attributes=4, edges=4, rows=150, seed=seed)
            warned += bool(rejections(residual_tests(data.values, data.names, data.truth, 0)))
    assert warned < 2


def test_multiplied_noise_is_rejected_and_named():
    added, multiplied = (residual_tests(fork(how), NAMES, FORK, 0) for how in (False, True))
    assert [one.column for one in multiplied] == ["b", "c"]
    assert not rejections(added)
    assert all(one.rejected for one in multiplied)
    [said] = rejections(multiplied)
    assert "2 of 2 tested columns: " in said
    assert "b (p = below 0.0001)" in said
    assert multiplied[0].record() == {"causes": ["a"], "p_value": multiplied[0].record()["p_value"], "rejected": True}


def test_an_edge_that_points_the_wrong_way_is_rejected():
    turned = np.array([[0, 0, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
    assert residual_tests(fork(False, rows=400), NAMES, turned, 0)[0].rejected


def test_the_same_seed_gives_the_same_chances():
    values, one_edge = fork(True, rows=1100), FORK & (np.arange(3) == 1)
    first, again, other = (residual_tests(values, NAMES, one_edge, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other, "another sample of the rows"


def test_what_is_not_tested_says_why():
    values = fork(False, rows=120)
    values[:, 1] = values[:, 1] > 0
    values[: 120 - FEWEST + 1, 2] = np.nan
    b, c = residual_tests(values, NAMES, FORK, 0)
    assert "two values" in str(b.why_not)
    assert f"{FEWEST - 1} rows are too few" in str(c.why_not)
    assert residual_tests(values, NAMES, FORK, 0, nominal=["b"])[0].why_not == "it has categories"
    late = residual_tests(fork(False), NAMES, FORK, 0, time_is_up=lambda: True)
    assert {one.why_not for one in late} == {"there was no time for it"}
    assert not residual_tests(values, NAMES, np.zeros((3, 3), dtype=bool), 0)


def test_causes_that_are_categories_are_taken_apart():
    rng = np.random.default_rng(3)
    kind = rng.integers(0, 3, 300)
    values = np.column_stack([kind, np.array([0.0, 3.0, -2.0])[kind] + rng.normal(size=300)])
    graph = np.array([[False, True], [False, False]])
    assert not residual_tests(values, ("kind", "x"), graph, 0, nominal=["kind"])[0].rejected


@pytest.mark.parametrize("method", ["direct_lingam", "vfedcd"])
def test_a_run_reports_it_where_rows_are_in_one_place(tmp_path: Path, method: str):
    settings = {"epochs": 2, "refit_epochs": 1, "searches": []} if method == "vfedcd" else {}
    known = {"required": [("a", "b"), ("a", "c")], "forbidden": [("b", "c"), ("c", "b")]}
    run = discover(_named(fork(True)), method=method, out=tmp_path / "run", **known, **settings)
    told = run.summary["residuals"]
    assert told["computed"]
    assert told["level"] == LEVEL
    assert told["columns"]["b"]["rejected"]
    assert any(warning.startswith("residuals depend on the causes in 2 of 2") for warning in run.summary["warnings"])
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Do residuals depend on the causes?" in page
    assert "depend on the causes</strong>" in page
    json.dumps(run.summary, allow_nan=False)


def test_between_parties_it_says_that_it_was_not_computed(tmp_path: Path):
    settings = {"epochs": 1, "refit_epochs": 0, "searches": [], "threshold": 0.1}
    parties = {"one": ["a"], "two": ["b", "c"]}
    run = discover(_named(fork(True, rows=100)), parties, method="vfedcd", out=tmp_path / "run", **settings)
    assert run.summary["residuals"] == {"computed": False, "why": NOT_HERE}
    assert NOT_HERE in run.summary["notes"]
    assert NOT_HERE[1:] in (run.path / "report.html").read_text(encoding="utf-8")


def test_an_estimator_tests_its_own_graph():
    fitted = build("direct_lingam", required=[("a", "b"), ("a", "c")], forbidden=[("b", "c"), ("c", "b")]).fit(
        _named(fork(True))
    )
    assert {one.column for one in fitted.residual_tests(_named(fork(True))) if one.rejected} >= {"b", "c"}


def _named(values: np.ndarray):
    import polars as pl

    return pl.DataFrame({name: values[:, at] for at, name in enumerate(NAMES)})
