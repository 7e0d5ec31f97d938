"""Warnings fire on tables that the method does not suit, and not on those that it does."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.data.causal import load_causal, topological_order
from veracausa.data.causal.columns import standardised
from veracausa.data.causal.synthetic import SyntheticOptions as Options
from veracausa.data.causal.synthetic import random_dag, synthetic
from veracausa.discovery.engines.shares.plaintext_twin import discover_plaintext
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.diagnostics import FIGURES, figures, warnings
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings

QUICK = {"epochs": 40, "refit_epochs": 40, "learning_rate": 0.03, "searches": []}
"""Enough for relations that are clearly straight or clearly curved."""


def linear(seed: int, rows: int = 240, exponential: bool = False) -> np.ndarray:
    """Six columns and seven straight lines."""
    rng = np.random.default_rng(seed)
    truth = random_dag(6, 7, rng)
    values = np.zeros((rows, 6))
    order = topological_order(truth)
    assert order is not None
    for node in order:
        noise = rng.exponential(1, rows) - 1 if exponential else rng.normal(0, 1, rows)
        values[:, node] = values @ (truth[:, node] * rng.uniform(0.5, 0.9, 6)) + noise
    return (values - values.mean(0)) / values.std(0)


def curved(seed: int) -> np.ndarray:
    return synthetic(Options(name="synthetic", attributes=6, edges=9, rows=240, seed=seed)).values


def words(values: np.ndarray) -> str:
    return " | ".join(VFedCD(searches=[]).fit(values).warnings_)


@pytest.mark.parametrize("seed", [1, 2])
def test_linear_data_are_called_linear(seed: int) -> None:
    said = words(linear(seed))
    assert "relations look linear" in said
    assert "directions as guesses" in said
    assert "skewed" not in said


@pytest.mark.parametrize("seed", [101, 102])
def test_nothing_is_said_against_the_data_that_the_method_suits(seed: int) -> None:
    assert not words(curved(seed))


def test_skewed_noise_is_said() -> None:
    assert "noise looks skewed" in words(linear(3, exponential=True))


def test_parties_work_the_same_out_from_what_they_have_opened() -> None:
    for table, expected in ((linear(1), True), (load_causal("patients", rows=240).values, False)):
        values = standardised(table)[0]
        columns = {"a": values[:, :3], "b": values[:, 3:]}
        fit = discover_plaintext(columns, tuple("uvwxyz"), Settings(**QUICK), seed=0)
        assert fit.figures is not None
        assert fit.figures.shape == (6, len(FIGURES))
        graph = greedy_cut(np.where(fit.allowed, fit.strengths, 0.0), fit.threshold, None, ~fit.allowed)
        assert graph.any()
        assert ("look linear" in " ".join(warnings(fit.figures, graph))) is expected


def test_a_linear_fit_is_judged_by_rows_that_it_has_not_seen() -> None:
    rng = np.random.default_rng(0)
    noise, causes = rng.normal(size=(60, 200)), rng.normal(size=(60, 15))
    found = figures(np.zeros((60, 200)), noise, [causes] * 200, np.zeros(200, dtype=bool), 240)
    assert -0.2 < found[:, 1].mean() < 0.0, "fifteen columns of chance explain nothing"
    straight = causes @ np.arange(1.0, 16.0)[:, None]
    assert figures(straight, straight, [causes], np.zeros(1, dtype=bool), 240)[0, :2] == pytest.approx(1.0)


def test_what_can_not_be_said_is_nan_and_warns_of_nothing() -> None:
    few = figures(np.zeros((8, 1)), np.arange(8.0)[:, None], [np.eye(8)[:, :5]], np.zeros(1, dtype=bool), 240)[0]
    assert np.isnan(few[1]), "five causes and eight rows"
    binary = figures(
        np.zeros((50, 1)), (np.arange(50.0) % 5 == 0)[:, None] * 1.0, [np.ones((50, 1))], np.array([True]), 9
    )
    assert np.isnan(binary[0, 2:]).all(), "two values are no normal noise"
    assert np.isnan(
        figures(np.zeros((0, 2)), np.zeros((0, 2)), [np.zeros((0, 1))] * 2, np.zeros(2, dtype=bool), 9)
    ).all()
    assert warnings(np.full((4, len(FIGURES)), np.nan), np.ones((4, 4), dtype=bool)) == ()


def test_little_that_is_explained_is_said_of_attributes_with_a_cause() -> None:
    graph = np.zeros((3, 3), dtype=bool)
    graph[0, 1] = graph[0, 2] = True
    rows = np.array([[0.0, 0.0, 0.0, 0.0], [0.3, 0.1, 0.0, 0.0], [0.4, 0.1, 0.0, 0.0]])
    said = warnings(rows, graph)
    assert len(said) == 1
    assert said[0].startswith("causes explain little: 35%")
    rows[1:, 0] = 0.9
    assert not warnings(rows, graph)
