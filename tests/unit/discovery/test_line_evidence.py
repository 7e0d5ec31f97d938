"""The evidence of a graph of lines with noise of any shape, and when rows bear lines out."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.data.causal import load_causal
from veracausa.discovery.line_evidence import (
    FURTHEST,
    NORMAL,
    LineEvidence,
    along,
    likeliest_lines,
    log_likelihood,
    sources_first,
)


def evidence_of(values: np.ndarray) -> LineEvidence:
    return LineEvidence(values, np.random.default_rng(0))


def chain(rows: int = 1500) -> np.ndarray:
    noise = np.random.default_rng(1).exponential(size=(4, rows)) - 1
    a = noise[0]
    b = 0.9 * a + noise[1]
    c = 0.9 * b + noise[2]
    return np.column_stack([c, a, b, 0.9 * a - 0.9 * c + noise[3]])


TRUTH = np.zeros((4, 4), dtype=bool)
TRUTH[1, 2] = TRUTH[2, 0] = TRUTH[1, 3] = TRUTH[0, 3] = True
FREE, NONE = ~np.eye(4, dtype=bool), np.zeros((4, 4), dtype=bool)


def test_normal_noise_has_the_entropy_of_normal_noise() -> None:
    drawn = np.random.default_rng(0).normal(scale=3, size=20_000)
    assert log_likelihood(drawn) / 20_000 == pytest.approx(-NORMAL - np.log(3), abs=0.02)


def test_a_few_values_far_outside_are_not_worth_everything() -> None:
    spiky = np.zeros(1000)
    spiky[:2] = 1.0
    assert log_likelihood(spiky) <= -1000 * (NORMAL - FURTHEST + np.log(spiky.std())) + 1e-6


def test_the_true_graph_is_likelier_than_with_an_edge_turned_around() -> None:
    evidence = evidence_of(chain())
    for cause, effect in np.argwhere(TRUTH):
        other = TRUTH.copy()
        other[cause, effect], other[effect, cause] = False, True
        assert evidence.of(TRUTH) > evidence.of(other)


@pytest.mark.parametrize("start", [NONE, TRUTH.T])
def test_lines_are_found_from_anywhere(start: np.ndarray) -> None:
    assert np.array_equal(likeliest_lines(evidence_of(chain()), start, FREE, NONE), TRUTH)


def test_sources_come_first() -> None:
    order, left = sources_first(chain())
    assert [*order, *left][:2] == [1, 2]
    assert sources_first(chain(), lambda: True) == ([], [0, 1, 2, 3])


def test_an_order_keeps_to_what_may_be() -> None:
    may = FREE.copy()
    may[1, 2] = False
    assert not along(evidence_of(chain()), [1, 2, 0, 3], may)[1, 2]


def test_what_causes_explain_is_what_is_not_left() -> None:
    values = chain()
    share = evidence_of(values).explained(TRUTH)
    left = values[:, 2] - values[:, 1] * (np.cov(values[:, 1], values[:, 2])[0, 1] / values[:, 1].var(ddof=1))
    assert share[2] == pytest.approx(1 - left.var() / values[:, 2].var(), abs=1e-3)
    assert share[1] == pytest.approx(0, abs=1e-9)


def borne_out(values: np.ndarray, graph: np.ndarray) -> bool:
    return evidence_of(values).bears_out(graph, np.random.default_rng(3))


def test_rows_bear_lines_out_along_the_right_order_alone() -> None:
    assert borne_out(chain(), TRUTH)
    assert not borne_out(chain(), TRUTH.T)
    assert not borne_out(chain(), NONE)


def test_normal_noise_bears_no_direction_out() -> None:
    values = np.random.default_rng(4).normal(size=(1500, 4))
    values[:, 2] += values[:, 1]
    assert not borne_out(values, TRUTH)


@pytest.mark.parametrize("noise", ["gaussian", "exponential"])
@pytest.mark.parametrize("generator", ["quadratics", "sines"])
def test_curves_are_no_lines(generator: str, noise: str) -> None:
    data = load_causal("suite", generator=generator, noise=noise, attributes=6, rows=600, seed=1)
    assert not borne_out(data.values, np.asarray(data.truth))
