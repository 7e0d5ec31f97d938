"""No combination of the receiver's columns may single out fewer rows than the job asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.training.blind.leverage import heavy_rows, leverages

LEAST = 20


def blocks_of(columns: Array, rows: int = 64) -> Callable[[], Iterator[Array]]:
    return lambda: (columns[start : start + rows] for start in range(0, len(columns), rows))


def heavy(columns: Array, seed: int = 0) -> Array:
    return heavy_rows(blocks_of(columns), LEAST, np.random.default_rng(seed))


def words(n: int = 600, rare: tuple[int, ...] = (17,)) -> Array:
    """0/1 columns of the two common words and the constant; the third word has few rows and no column."""
    common = np.arange(n) % 2
    third = np.isin(np.arange(n), rare)
    return np.stack([(common == 0) & ~third, (common == 1) & ~third, np.ones(n, dtype=bool)], axis=1).astype(float)


def test_a_rare_word_without_a_column_of_its_own_is_found() -> None:
    left_out = heavy(words())
    assert left_out[17]
    assert left_out.sum() == LEAST


def test_the_difference_to_all_ones_opens_no_single_row() -> None:
    """Features sum to zero at home, so a constant that lacks one row opens that row: others must go with it."""
    columns, phi = words(), np.random.default_rng(1).normal(size=(600, 5))
    phi -= phi.mean(0)
    kept = ~heavy(columns)
    opened = (np.ones(600) - columns[:, 2] * kept) @ phi
    assert not np.allclose(opened, phi[17], atol=0.5)
    assert np.count_nonzero(~kept) >= LEAST
    # Without the filling, it would be that row.
    alone = np.arange(600) != 17
    np.testing.assert_allclose((np.ones(600) - alone) @ phi, phi[17])


def test_two_flags_that_differ_in_one_row_are_found() -> None:
    rng = np.random.default_rng(0)
    flag = rng.integers(0, 2, 500)
    other = flag.copy()
    other[3] = 1 - other[3]
    assert heavy(np.stack([flag, other, np.ones(500)], axis=1).astype(float))[3]


def test_an_outlier_of_a_spline_is_found() -> None:
    value = np.random.default_rng(0).normal(size=20_000)
    value[5] = 60.0
    assert heavy(np.stack([value, value**2, np.ones(20_000)], axis=1))[5]


def test_rows_that_nothing_singles_out_stay() -> None:
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.normal(size=(5000, 10)), words(5000, rare=tuple(range(40)))], axis=1)
    assert not heavy(columns).any()


def test_what_was_left_out_can_not_be_singled_out_either() -> None:
    columns = np.concatenate([words(rare=(1, 2)), (np.arange(600) == 400)[:, None]], axis=1)
    left_out = heavy(columns)
    assert left_out[[1, 2, 400]].all()
    assert leverages(blocks_of(columns), left_out).max() <= (1 + 1e-9) / LEAST


def test_too_many_such_rows_are_refused() -> None:
    with pytest.raises(InputError, match="single out"):
        heavy(np.eye(200))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_leverage_is_that_of_the_hat_matrix(seed: int, width: int) -> None:
    columns = np.random.default_rng(seed).normal(size=(50, width)) * np.logspace(-2, 2, width)
    whole = np.concatenate([np.ones((50, 1)), columns], axis=1)
    hat = np.diag(whole @ np.linalg.pinv(whole))
    np.testing.assert_allclose(leverages(blocks_of(columns, 7), np.zeros(50, dtype=bool)), hat, atol=1e-8)
