"""Attacks on sums over rows: each reads rows where it must, and none where the protocol holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.attacks import column_attacks
from veracausa.attacks.columns import ColumnGuess
from veracausa.audit.column_scores import make_attack
from veracausa.audit.sums_scores import ALONE, MEAN, attacked, baselines, scored
from veracausa.audit.sums_system import SumsSystem, _Ridge
from veracausa.audit.sums_views import SumsSeat, SumsViews
from veracausa.crypto.moments import Moments
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.engines.sums.program import SumsProgram
from veracausa.discovery.methods.moments.expansion import column_kinds
from veracausa.discovery.methods.moments.search import Known
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.runs.store import Store
from veracausa.wire.launch import Launch

PARTIES = {"lab": ("a", "b"), "clinic": ("c", "d"), "bank": ("e", "f")}


def table(rows: int, nominal: bool = False, seed: int = 0) -> np.ndarray:
    """Six columns; each one of a party has to do with one of the next party."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, 6))
    x[:, 2] += np.sin(2 * x[:, 0])
    x[:, 5] += 0.7 * x[:, 3] ** 2
    if nominal:
        x[:, 4] = (x[:, 2] > 0.5).astype(float) + (x[:, 2] > -0.5) + 0.0
    return x


def system(rows: int, others: int = 0, nominal: bool = False, **settings: Any) -> SumsSystem:
    x, names = table(rows + others, nominal), [name for own in PARTIES.values() for name in own]
    place = {party: [names.index(name) for name in own] for party, own in PARTIES.items()}
    kinds = {party: column_kinds(x[:, at], PARTIES[party], ("e",) if nominal else ()) for party, at in place.items()}
    how = {"encryption": "none", "functions": 4, "allow_small_n": True, **settings}
    plan = SumsPlan(SumsSettings(**how), PARTIES, rows, 0)
    values = {party: x[:rows, at] for party, at in place.items()}
    rest = {party: x[rows:, at] for party, at in place.items()} if others else None
    return SumsSystem.of(plan, values, kinds, rest)


def views(made: SumsSystem, releases: int = 3) -> SumsViews:
    return SumsViews(made, 0, 10, releases)


def reached(seats: list[SumsSeat], name: str, epsilon: float | None = None, **settings: Any) -> dict[str, Any]:
    return attacked(seats, make_attack(name, settings), epsilon, 1e-5)


def test_what_is_attacked_are_the_sums_that_the_validator_opened(tmp_path: Path) -> None:
    made = system(120)
    programs = {
        name: SumsProgram(made.plan, name, made.values.get(name), made.kinds.get(name), Known.nothing(6), 1, tmp_path)
        for name in made.plan.members
    }
    Launch("threads", 60.0).run(programs, lambda event: None)
    opened = Moments.of(Store(tmp_path, "validator").load(1)["opened"][0])
    sums = views(made).validator().view.sums
    np.testing.assert_array_equal(np.rint(sums.gram / made.moments.unit).astype(np.int64), opened.integers)


def test_own_columns_alone_are_what_a_regression_on_other_people_reaches() -> None:
    # The adjusted R² stands for other people where a table has none; with many of them both must agree.
    alone = views(system(400)).party(("lab",), "clinic").alone
    others = views(system(400, others=6000)).party(("lab",), "clinic").alone
    assert alone[0] > 0.3 > 0.05 > abs(alone[1])
    assert np.abs(np.array(alone) - others).max() < 0.05
    blind = baselines([views(system(400)).party(("lab",), "clinic")])
    assert blind[MEAN]["mean"] == 0 < blind[ALONE]["mean"]


def test_ridge_predicts_rows_that_it_did_not_see() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((200, 3))
    ridge = _Ridge(x, x @ np.ones((3, 1)) + 0.1 * draw.standard_normal((200, 1)))
    assert np.square(ridge.values - ridge.left_out(ridge.penalty)).mean() < 0.02
    noise = _Ridge(x, draw.standard_normal((200, 1)))
    assert np.square(noise.left_out(noise.penalty)).mean() < 0.05


def test_a_party_and_the_validator_gain_its_share_of_equations_and_no_more() -> None:
    few, many = system(60), system(1500)
    low, high = (reached(views(made).parties(), "sum_regression") for made in (many, few))
    # p/n of what own columns leave open.
    assert high["gain"] > 0.1
    assert low["gain"] < 0.015
    widths = [own.features.shape[1] for own in many.parties.values()]
    assert low["notes"]["mean_leverage"] == pytest.approx(np.mean(widths) / 1500, rel=0.01)


def test_functions_on_a_curve_tell_rows_that_a_regression_does_not() -> None:
    few, many = (views(system(rows, functions=8)).party(("lab", "bank"), "clinic") for rows in (80, 2500))
    plain, curves = (reached([few], name) for name in ("sum_regression", "curve_sampling"))
    assert curves["mean"] > 0.9 > 0.75 > plain["mean"]
    assert reached([many], "curve_sampling", sweeps=4)["gain"] < 0.05


def test_with_noise_the_sums_add_nothing_to_other_people() -> None:
    made = views(system(300, others=1000, epsilon=1.0)).party(("lab", "bank"), "clinic")
    for name in ("sum_regression", "sum_correction", "curve_sampling"):
        assert reached([made], name)["gain"] < 0.02
    exact = views(system(300, others=1000)).party(("lab", "bank"), "clinic")
    assert reached([exact], "sum_correction")["gain"] > 0.03


def test_the_validator_alone_reads_no_row_and_with_all_rows_but_one_the_last() -> None:
    made = views(system(80))
    seat = made.validator()
    assert reached([seat], "null_space")["mean"] == pytest.approx(0.0, abs=1e-9)
    assert reached([seat], "known_rows_left")["mean"] < 0.1
    assert reached([made.knowing_all_but(seat, 1)], "known_rows_left")["mean"] > 0.95
    noisy = views(system(80, epsilon=4.0))
    assert reached([noisy.knowing_all_but(noisy.validator(), 1)], "known_rows_left")["notes"]["rows_found"] == 0


def test_turned_rows_have_the_same_sums() -> None:
    # Why the validator alone has no row: nothing that it sees changes when rows are turned among each other.
    made = system(80)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((80, 80)))[0]
    np.testing.assert_allclose((turn @ made.everybody).T @ (turn @ made.everybody), made.everybody.T @ made.everybody)


def test_fewer_rows_than_functions_tell_rows_to_the_validator() -> None:
    seat = views(system(12)).validator()
    assert reached([seat], "null_space")["mean"] > 0.9


@pytest.mark.parametrize("checked", [True, False])
def test_a_made_up_feature_reads_rows_whether_single_features_are_checked_or_not(checked: bool) -> None:
    made = views(system(200))
    seat = made.party(("lab",), "clinic")
    found = reached([seat if checked else made.unchecked(seat)], "indicator_column")
    assert found["notes"]["indicator_refused"] == checked
    assert found["mean"] > 0.97
    noisy = views(system(200, epsilon=1.0)).party(("lab",), "clinic")
    assert reached([noisy], "indicator_column")["mean"] < 0.1
    # It is semi-honest parties that noise protects from: a large feature stands out of it.
    assert reached([noisy], "indicator_column", amplitude=1e4)["mean"] > 0.5


def test_two_releases_that_differ_by_a_row_are_that_row() -> None:
    made = views(system(200))
    assert reached([made.validator()], "row_difference")["mean"] > 0.97
    # Functions that are made anew without the row hide it no better.
    assert reached([made.made_anew(made.validator())], "row_difference")["mean"] > 0.9
    noisy = views(system(200, epsilon=4.0))
    assert reached([noisy.validator()], "row_difference")["mean"] < 0.05


def test_resamples_are_equations_and_as_many_as_rows_solve_them() -> None:
    made = system(96)
    some, all_of_them = (views(made, releases).party(("lab",), "clinic") for releases in (2, 10))
    part, whole = (reached([seat], "weighted_releases") for seat in (some, all_of_them))
    assert part["notes"]["equations_a_row"] == pytest.approx(3 * made.widths["lab"] / 96)
    assert 0.3 < part["mean"] < 0.8
    assert whole["mean"] > 0.97
    noisy = views(system(96, epsilon=4.0), 10).party(("lab",), "clinic")
    assert reached([noisy], "weighted_releases")["mean"] < 0.3


def test_membership_shows_where_functions_are_many_and_stays_below_the_bound_of_epsilon() -> None:
    few, many = (views(system(rows)) for rows in (60, 2000))
    assert reached([few.membership(few.validator())], "sums_membership")["auc"] > 0.65
    assert reached([many.membership(many.validator())], "sums_membership")["auc"] < 0.6
    noisy = views(system(1000, epsilon=1.0))
    found = reached([noisy.membership(noisy.validator())], "sums_membership", 1.0)
    assert found["advantage"] < found["bound"] == pytest.approx(0.4621, abs=1e-3)


def test_categories_are_counted_by_cells_beside_the_most_frequent_one() -> None:
    seat = views(system(400, nominal=True)).party(("clinic",), "bank")
    column = seat.columns[0]
    truth = column.curve.functions[np.searchsorted(column.curve.values, column.truth)]
    values = np.column_stack([truth[:, : len(column.curve.guesses)], np.zeros(400)])
    perfect = scored(seat, ColumnGuess(values, ordered=True))
    assert perfect.cells == (1.0,)
    assert len(perfect.r2) == 1
    # The category is a function of column c, so own columns and other people tell it, and sums add nothing.
    assert perfect.cells_without[0] > 0.8
    assert abs(reached([seat], "sum_regression")["cells_gain"]) < 0.05


def test_attacks_on_sums_declare_who_attacks() -> None:
    names = [name for name in column_attacks.names() if column_attacks.get(name).opened == "sums"]
    assert len(names) == 9
    known = set(views(system(60)).makers)
    for name in names:
        assert set(column_attacks.get(name).situations) <= known
