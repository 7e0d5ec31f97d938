"""The Gram matrix of foreign rows, from a training whose columns are known here and not to the attack."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.attacks.columns import Opened
from veracausa.attacks.methods.columns.gram import components

ROWS, COLUMNS, TARGETS, WIDTH, BATCH = 60, 3, 2, 4, 12


def lived(
    epochs: int, factor: float | None = None, seed: int = 0, weights_seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[Opened]]:
    """Columns, all features at the end, and what a target opened batch by batch."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, COLUMNS)) @ np.array([[1, 0.6, 0], [0, 1, -0.4], [0, 0, 1]])
    rng = np.random.default_rng((seed, weights_seed))
    weights = rng.uniform(-1, 1, (COLUMNS, TARGETS * WIDTH))
    opened = []
    for _ in range(epochs):
        for start in range(0, ROWS, BATCH):
            rows = np.arange(start, start + BATCH)
            steps = 0.02 * rng.standard_normal((BATCH, TARGETS * WIDTH))
            factors = None
            if factor is not None:
                factors = factor + 0.02 * rng.uniform(-1, 1, (COLUMNS, TARGETS))
            opened.append(Opened(rows, x[rows] @ weights, steps, factors))
            weights = weights + x[rows].T @ steps
            if factors is not None:
                weights = weights * np.repeat(factors, WIDTH, axis=1)
    return x, x @ weights, opened


def wrong(guess: np.ndarray, x: np.ndarray) -> float:
    return float(np.linalg.norm(products(guess) - products(x)) / np.linalg.norm(products(x)))


def products(found: np.ndarray) -> np.ndarray:
    return found @ found.T


def test_products_of_all_people_follow_from_two_epochs() -> None:
    x, features, opened = lived(2)
    found = components(features, [opened], COLUMNS)
    assert found is not None
    assert products(found) == pytest.approx(products(x), abs=1e-6)


def test_factors_of_the_validator_blur_and_do_not_hide_them() -> None:
    x, features, opened = lived(2, factor=0.97)
    found = components(features, [opened], COLUMNS)
    assert found is not None
    assert np.corrcoef(products(found).ravel(), products(x).ravel())[0, 1] > 0.9


def test_searches_of_the_same_rows_are_solved_together() -> None:
    alone, together = [], []
    for seed in range(6):
        x, features, opened = lived(2, 0.97, seed)
        _, other, again = lived(2, 0.97, seed, weights_seed=1)
        beside = np.hstack([features, other])
        one, two, both = (components(beside, each, COLUMNS) for each in ([opened], [again], [opened, again]))
        assert one is not None
        assert two is not None
        assert both is not None
        alone += [wrong(one, x), wrong(two, x)]
        together.append(wrong(both, x))
    assert np.mean(together) < np.mean(alone), "factors blur each search in a way of its own"


def test_one_opening_of_each_batch_tells_no_products() -> None:
    _, features, opened = lived(1)
    assert components(features, [opened], COLUMNS) is None


def test_steps_that_are_not_those_of_the_training_tell_nothing() -> None:
    x, features, opened = lived(2)
    rng = np.random.default_rng(9)
    wrong = [Opened(each.rows, each.features, rng.standard_normal(each.steps.shape), None) for each in opened]
    found = components(features, [wrong], COLUMNS)
    assert found is None or np.abs(products(found) - products(x)).mean() > 0.5 * np.abs(products(x)).mean()
