"""What a party sums up tells no single row: thin columns, gaps, ends of curves, and room for features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import Names

from sums_runs import sums_plan
from veracausa.discovery.engines.sums.features import LEVERAGE, OwnFeatures, own_features
from veracausa.discovery.engines.sums.leverage import leverages, tamed
from veracausa.discovery.engines.sums.plan import LIMIT
from veracausa.discovery.methods.moments.expansion import LEAST, expand
from veracausa.errors import InputError

ROWS = 600
RNG = np.random.default_rng(0)
TWO = {"ann": ("a", "b"), "bob": ("c", "d")}


def made(first: np.ndarray, second: np.ndarray | None = None, kinds=None, **more) -> OwnFeatures:
    """Ann's features of two columns, beside a party that has two as well."""
    second = np.random.default_rng(1).normal(size=len(first)) if second is None else second
    plan = sums_plan(len(first), TWO, **more)
    return own_features(plan, "ann", np.column_stack([first, second]), kinds)


def normal(rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(2).normal(size=rows)


def test_all_features_have_a_place_within_the_limit() -> None:
    own = made(np.random.default_rng(3).standard_t(2, size=ROWS))
    assert own.width == sum(node.width for node in own.nodes) + sum(pair.width for pair in own.pairs)
    assert np.abs(own.features).max() <= LIMIT


def test_an_indicator_of_few_rows_takes_no_part() -> None:
    flag = np.zeros(ROWS)
    flag[: LEAST - 1] = 1
    own = made(flag)
    assert own.nodes[0] is None
    assert any(note.startswith("a:") and "no part" in note for note in own.notes)
    flag[LEAST - 1] = 1
    assert made(flag).nodes[0] is not None


def test_a_number_that_is_mostly_one_value_takes_no_part() -> None:
    number = np.zeros(ROWS)
    number[: LEAST - 1] = normal(LEAST - 1)
    assert made(number).nodes[0] is None


@pytest.mark.parametrize("values", [np.full(ROWS, 3.0), np.full(ROWS, np.nan)])
def test_a_column_without_values_takes_no_part(values: np.ndarray) -> None:
    assert made(values).nodes[0] is None


def test_who_has_no_column_left_is_refused() -> None:
    with pytest.raises(InputError, check=Names("ann", "constant")):
        made(np.full(ROWS, 3.0), np.full(ROWS, 1.0))


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_what_is_infinite_is_refused(bad: float) -> None:
    column = normal()
    column[3] = bad
    with pytest.raises(InputError, check=Names("a")):
        made(column)


@pytest.mark.parametrize("gaps", [1, LEAST - 1, ROWS - LEAST + 1])
def test_gaps_that_would_tell_rows_are_filled(gaps: int) -> None:
    column = normal()
    column[:gaps] = np.nan
    own = made(column)
    assert own.nodes[0] is None or not own.nodes[0].mask
    assert any("median" in note for note in own.notes)


def test_gaps_of_many_rows_travel_as_a_mask() -> None:
    column = normal()
    column[:LEAST] = np.nan
    own = made(column)
    assert own.nodes[0].mask == 1
    at = own.nodes[0].width - 1
    assert np.array_equal(own.features[:, at], ~np.isnan(column))
    assert not own.features[:LEAST, :at].any(), "nothing is summed up where a value is missing"


def test_a_gap_in_words_becomes_the_most_frequent_word() -> None:
    words = np.repeat([0.0, 1.0, 2.0], [300, 200, 100])
    words[5] = np.nan
    own = made(words, kinds=("nominal", "number"))
    assert own.nodes[0].functions == 2
    assert any("most frequent" in note for note in own.notes)


def test_rare_categories_are_merged_and_too_many_as_well() -> None:
    words = np.random.default_rng(4).integers(0, 25, ROWS).astype(float)
    plan = sums_plan(ROWS, TWO)
    own = own_features(plan, "ann", np.column_stack([words, normal()]), ("nominal", "number"))
    assert own.width <= plan.most_features("ann")
    assert any("merged" in note for note in own.notes)


@pytest.mark.parametrize("rows", [40, 80, 130, 400, 5000])
@pytest.mark.parametrize("receiver", ["validator", "all"])
def test_rows_are_enough_for_the_features_of_any_two_parties(rows: int, receiver: str) -> None:
    plan = sums_plan(rows, TWO, receiver=receiver)
    if plan.room < 1:
        with pytest.raises(InputError, check=Names(str(plan.rows_a_feature * 4))):
            plan.check()
        return
    values = np.random.default_rng(5).normal(size=(rows, 2))
    widths = {party: own_features(plan, party, values).width for party in TWO}
    assert rows >= plan.rows_a_feature * sum(widths.values())
    plan.moments(widths).check()


def test_few_rows_leave_straight_lines_and_a_note() -> None:
    own = made(normal(80), normal(80) ** 2)
    assert [node.functions for node in own.nodes] == [1, 1] or own.width <= 4
    assert any("squares" in note for note in own.notes)


DRAWS = {
    "normal": lambda rng, rows: rng.normal(size=rows),
    "exponential": lambda rng, rows: rng.exponential(size=rows),
    "heavy": lambda rng, rows: rng.standard_t(2, size=rows),
    "counts": lambda rng, rows: rng.poisson(2.0, size=rows).astype(float),
}


@pytest.mark.parametrize("name", DRAWS)
def test_ends_of_curves_are_shared_by_many_rows(name: str) -> None:
    """No function of a column but the number itself tells the rows at its ends apart."""
    column = DRAWS[name](np.random.default_rng(6), 1000)
    own = made(column, normal(1000), products=False)
    node = own.nodes[0]
    order = np.argsort(column)
    for end in (order[:LEAST], order[-LEAST:]):
        curves = own.features[end, 1 : node.functions]
        straight = own.features[end, 0]
        # A curve is a constant there, but for what it has of the number to be uncorrelated with it.
        centred = straight - straight.mean()
        rest = curves - curves.mean(axis=0) - np.outer(centred, centred @ curves / max(centred @ centred, 1e-12))
        assert np.abs(rest).max(initial=0) < 1e-6


@pytest.mark.parametrize("name", DRAWS)
def test_where_parties_open_sums_no_row_is_singled_out(name: str) -> None:
    rng = np.random.default_rng(7)
    plan = sums_plan(1000, {"ann": ("a", "b", "c"), "bob": ("d",)}, receiver="all")
    values = np.column_stack([DRAWS[name](rng, 1000) for _ in range(3)])
    own = own_features(plan, "ann", values)
    assert leverages(own.features).max() <= LEVERAGE + 1e-9
    assert own.nodes[0] is not None


def test_two_columns_that_differ_in_a_row_do_not_both_take_part_where_parties_open_sums() -> None:
    """Each alone is common enough; their difference is an indicator of one row."""
    flag = (np.arange(ROWS) % 2).astype(float)
    other = flag.copy()
    other[0] = 1 - other[0]
    plan = sums_plan(ROWS, TWO, receiver="all")
    own = own_features(plan, "ann", np.column_stack([flag, other]))
    assert [node is None for node in own.nodes].count(True) == 1
    told = own_features(sums_plan(ROWS, TWO), "ann", np.column_stack([flag, other]))
    assert any("single out" in note for note in told.notes), "with a validator it is said"


@given(st.integers(1, 6), st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_a_leverage_is_what_the_sums_tell_of_a_row(functions: int, seed: int) -> None:
    """The best combination of one's own features reads exactly that share of a row's value at a partner."""
    rng = np.random.default_rng(seed)
    features = expand(rng.normal(size=(60, 2)), ["a", "b"], ["number"] * 2, functions).features
    share = leverages(features)
    whole = np.column_stack([np.ones(60), features])
    hat = whole @ np.linalg.pinv(whole)
    assert np.allclose(share, np.diag(hat), atol=1e-5)
    assert np.allclose(share, np.square(hat).sum(axis=1), atol=1e-5)


def test_longer_ends_lower_the_largest_leverage() -> None:
    values = np.random.default_rng(8).exponential(size=(1000, 3))
    whole = expand(values, ["a", "b", "c"], ["number"] * 3, 6)
    most = [leverages(one.features).max() for one in tamed(whole, values)]
    assert leverages(whole.features).max() > 0.95
    assert most == sorted(most, reverse=True)
    assert most[-1] < 0.6


def test_products_of_own_columns_where_rows_are_many() -> None:
    assert not made(normal(300)).pairs
    many = made(normal(3000), np.random.default_rng(9).normal(size=3000), functions=4)
    assert [(pair.first, pair.second) for pair in many.pairs] == [(0, 1)]
    assert not made(normal(3000), functions=4, epsilon=4.0).pairs, "each feature more makes all sums noisier"
