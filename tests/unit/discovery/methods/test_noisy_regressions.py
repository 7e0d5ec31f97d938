"""Regressions on sums with noise: what noise alone gives is known, and no edge is believed for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veracausa.discovery.methods.moments.expansion import NodeLayout
from veracausa.discovery.methods.moments.regressions import Regressions
from veracausa.discovery.methods.moments.sums import SumTable, sum_table

ROWS = 100_000


def nodes(count: int) -> tuple[NodeLayout, ...]:
    return tuple(NodeLayout(f"c{at}", "number", 1) for at in range(count))


def chain(count: int, slope: float) -> np.ndarray:
    """Correlations of columns of which each is the next one's only cause."""
    places = np.arange(count)
    return slope ** np.abs(places[:, None] - places)


def noisy(correlations: np.ndarray, deviation: float, seed: int) -> SumTable:
    drawn = np.triu(np.random.default_rng(seed).standard_normal(correlations.shape)) * deviation
    gram = ROWS * correlations + drawn + np.triu(drawn, 1).T
    return sum_table(gram, nodes(len(gram)), ROWS, np.full(gram.shape, deviation))


def test_exact_sums_know_of_no_noise() -> None:
    table = sum_table(ROWS * chain(4, 0.8), nodes(4), ROWS)
    assert table.noise is None
    silent = replace(table, noise=np.zeros((4, 4)))
    for parents in ((), ((0, 1),), ((0, 1), (1, 1))):
        one, other = (Regressions(each).regression(3, parents) for each in (table, silent))
        assert one.score == other.score
        assert np.array_equal(one.gains, other.gains)


def test_what_noise_alone_explains_is_what_was_said() -> None:
    """Of y on x beside the cause z: the spread of their partial covariance over draws of the noise."""
    exact, deviation = chain(3, 0.9), 0.002
    rng = np.random.default_rng(1)
    found = []
    for _ in range(4000):
        drawn = np.triu(rng.standard_normal((3, 3)), 1) * deviation
        c = exact + drawn + drawn.T
        found.append(c[2, 0] - c[2, 1] * c[0, 1] / c[1, 1])
    spread = np.square(found).mean()
    left = 1 - 0.9**2
    table = replace(sum_table(ROWS * exact, nodes(3), ROWS), noise=np.where(np.eye(3, dtype=bool), 0.0, deviation))
    regressions = Regressions(table)
    plain = Regressions(replace(table, noise=None))
    # Doubling the true partial correlation shows by how much gains are made smaller.
    shift = np.zeros((3, 3))
    shift[2, 0] = shift[0, 2] = 0.02
    told = [
        1 - np.exp(-2 * (one.regression(2, ((1, 1),)).gains[0] + one.cost[2] + one.edge_cost) / one.rows[2])
        for one in (
            Regressions(replace(each.sums, blocks=each.sums.blocks + shift.reshape(3, 1, 3, 1)))
            for each in (plain, regressions)
        )
    ]
    expected = 1 + float(regressions.rows[2]) * spread / left**2
    assert told[0] / told[1] == pytest.approx(expected, rel=0.1)  # 4,000 draws, and the shift moves what is left


def test_noise_makes_fewer_edges_where_columns_are_nearly_collinear() -> None:
    """Twelve columns in a row, each nearly the one before: noise on the sums looks like edges between all of them."""
    wrong = {True: 0, False: 0}
    missed = 0
    for seed in range(5):
        table = noisy(chain(12, 0.97), 0.002 * ROWS, seed)
        for aware in wrong:
            regressions = Regressions(table if aware else replace(table, noise=None))
            for target in range(1, 12):
                parents = {cause for cause, _ in regressions.best(target, (1 << target) - 1)[1]}
                wrong[aware] += len(parents - {target - 1})
                missed += aware and target - 1 not in parents
    assert wrong[False] > 20
    assert wrong[True] < wrong[False] / 4
    assert missed <= 3
