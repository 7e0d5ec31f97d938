"""Parties and a validator find the graph from sums: the same integers in every way, and nothing of a row crosses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import Names

from sums_runs import COLUMNS, ORDER, TRUTH, opened, sums_members, sums_plan, table
from veracausa.crypto.moments import cut, moments_of
from veracausa.discovery.engines.sums.features import own_features
from veracausa.discovery.engines.sums.searcher import AllFeatures
from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.moments.search import Known
from veracausa.errors import InputError, WireError
from veracausa.wire.ledger import read_ledger, releases

VALUES = table()
FRAME = np.concatenate(list(VALUES.values()), axis=1)
POSITIONS = {party: [ORDER.index(name) for name in own] for party, own in COLUMNS.items()}


def in_one_place(plan: Any) -> np.ndarray:
    made = {party: own_features(plan, party, VALUES[party]) for party in plan.parties}
    moments = plan.moments({party: own.width for party, own in made.items()})
    blocks = {party: cut(own.features, plan.block_rows) for party, own in made.items()}
    return moments_of(blocks, moments).integers


@pytest.mark.parametrize("encryption", ["none", "bfv"])
@pytest.mark.parametrize("receiver", ["validator", "all"])
def test_the_same_integers_in_every_way(encryption: str, receiver: str) -> None:
    plan = sums_plan(encryption=encryption, receiver=receiver, functions=2)
    members = sums_members(plan, VALUES)
    for member in members.values():
        if member.opens:
            assert np.array_equal(member.opened[0].integers, in_one_place(plan))


def test_everybody_ends_with_the_graph() -> None:
    members = sums_members(sums_plan(), VALUES)
    whole = members["validator"].graph.found
    assert {(ORDER[i], ORDER[j]) for i, j in np.argwhere(whole.adjacency)} == set(TRUTH)
    for party in COLUMNS:
        assert members[party].graph is None
        assert members[party].opened == []
        assert np.array_equal(members[party].told["adjacency"], whole.adjacency)
        assert np.allclose(members[party].told["strengths"], whole.strengths)
        assert np.allclose(members[party].told["explained"], whole.explained)


def test_parties_without_a_validator_find_the_same_graph() -> None:
    members = sums_members(sums_plan(receiver="all"), VALUES)
    assert set(members) == set(COLUMNS)
    states = [member.graph.found.state() for member in members.values()]
    assert str(states[0]) == str(states[1]) == str(states[2])


def test_a_party_is_told_of_its_own_columns_alone() -> None:
    members = sums_members(sums_plan(reveal="own"), VALUES)
    whole = members["validator"].graph.found
    for party in COLUMNS:
        own = members[party].plan.own(party)
        told = np.zeros(whole.adjacency.shape, dtype=bool)
        told[own] = told[:, own] = True
        assert np.array_equal(~np.isnan(members[party].told["adjacency"]), told)
        assert np.array_equal(members[party].told["adjacency"][told], whole.adjacency[told])
        assert np.isnan(np.delete(members[party].told["explained"], np.s_[own])).all()


def test_no_kind_carries_a_row(tmp_path: Path) -> None:
    """Every message is of a size that does not grow with rows, but for those that `crypto.moments` encrypts."""
    sizes: dict[int, dict[tuple[str, str], set[str]]] = {}
    for rows in (600, 1200):
        plan, out = sums_plan(rows, functions=3), tmp_path / str(rows)
        sums_members(plan, table(rows), out=out)
        found: dict[tuple[str, str], set[str]] = {}
        for member in plan.members:
            for line in read_ledger(out / "parties" / member / "ledger.jsonl"):
                if line["kind"] != "moment_query":
                    found.setdefault((member, line["kind"]), set()).add(str(line["shape"]))
        sizes[rows] = found
    assert sizes[600] == sizes[1200]
    assert {kind for _, kind in sizes[600]} <= {
        *("toss", "toss shown", "key", "agreed", "moment_hello", "moment_turn", "moment_taken", "moment_answer"),
        *("moment_share", "sums_hello", "sums_beat", "sums_layout", "sums_found"),
    }
    assert not any(kind.startswith("moment_query") for member, kind in sizes[600] if member == "validator")


def test_a_second_release_of_the_same_rows_is_refused(tmp_path: Path) -> None:
    plan = sums_plan()
    sums_members(plan, VALUES, out=tmp_path)
    before = releases(read_ledger(tmp_path / "parties" / "ann" / "ledger.jsonl"), plan.rows_digest)
    assert len(before) == 1
    with pytest.raises(InputError, match="budget"):
        sums_members(plan, VALUES, earlier=before)


def test_a_budget_has_room_for_two_releases_and_not_for_three(tmp_path: Path) -> None:
    spent = {"epsilon": 2.0, "budget": 3.2}
    plan = sums_plan(**spent)
    sums_members(plan, VALUES, out=tmp_path / "1")
    before = releases(read_ledger(tmp_path / "1" / "parties" / "ann" / "ledger.jsonl"), "")
    sums_members(plan, VALUES, out=tmp_path / "2", earlier=before)
    before |= releases(read_ledger(tmp_path / "2" / "parties" / "ann" / "ledger.jsonl"), "")
    assert len(before) == 2
    with pytest.raises(InputError, check=Names("3.2")):
        sums_members(plan, VALUES, earlier=before)


def test_the_party_that_opens_for_all_enters_its_release_too(tmp_path: Path) -> None:
    plan = sums_plan(receiver="all", epsilon=2.0)
    sums_members(plan, VALUES, out=tmp_path)
    for party in COLUMNS:
        spent = releases(read_ledger(tmp_path / "parties" / party / "ledger.jsonl"), "")
        assert list(spent.values()) == [pytest.approx(plan.moments(dict.fromkeys(COLUMNS, 1)).account.rho)]


def test_noise_is_on_every_sum_and_the_search_knows_how_much() -> None:
    plan = sums_plan(epsilon=8.0, functions=1)
    exact, noisy = in_one_place(plan), opened(sums_members(plan, VALUES))[0]
    away = (noisy.integers - exact) * noisy.unit
    assert (away[np.triu_indices(len(away))] != 0).all()
    assert 0.5 < np.abs(away / noisy.noise).mean() < 1.1, "a normal one is 0.8 deviations off on average"


def test_releases_of_resamples_together_spend_the_budget(tmp_path: Path) -> None:
    plan = sums_plan(2000, epsilon=4.0, bootstrap=2, resampling="rows")
    sums_members(plan, table(2000), out=tmp_path)
    spent = releases(read_ledger(tmp_path / "parties" / "bob" / "ledger.jsonl"), "")
    whole = sums_plan(2000, epsilon=4.0).moments(dict.fromkeys(COLUMNS, 1)).account
    assert len(spent) == 3
    assert sum(spent.values()) == pytest.approx(whole.rho, rel=1e-6)


def test_exact_resamples_need_as_many_times_the_rows() -> None:
    once, thrice = sums_plan(600), sums_plan(1800, bootstrap=2, resampling="rows")
    assert thrice.room == once.room
    with pytest.raises(InputError, check=Names("bootstrap")):
        sums_plan(600, bootstrap=19, resampling="rows").check()
    sums_plan(600, bootstrap=19).check()  # draws of sums release nothing


def test_resampled_sums_are_those_of_weighted_rows() -> None:
    plan = sums_plan(1800, bootstrap=1, resampling="rows", functions=1)
    values = table(1800)
    members = sums_members(plan, values)
    first, second = opened(members)
    from veracausa.discovery.methods.moments.resampling import row_weights

    weights = row_weights(1800, plan.seed, 1)
    features = np.concatenate([own_features(plan, p, values[p]).features for p in COLUMNS], axis=1)
    wanted = features.T @ (features * weights[:, None])
    assert np.abs(second.gram - wanted).max() < 1800 * 4 * 2.0**-12
    assert np.abs(first.gram - wanted).max() > 10
    assert members["validator"].graph.shares is not None


def test_what_is_known_of_the_graph_is_kept() -> None:
    never = np.zeros((5, 5), dtype=bool)
    never[ORDER.index("c"), ORDER.index("d")] = True
    known = Known(np.zeros((5, 5), dtype=bool), never, [0, 0, 1, 2, float("nan")])
    found = sums_members(sums_plan(), VALUES, known=known)["validator"].graph.found
    assert not found.adjacency[2, 3]
    assert not found.adjacency[3, 2], "d is of a later tier than c"


def test_another_plan_is_noticed_before_anything_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    from veracausa.discovery.engines.sums.plan import SumsPlan

    plan, digest = sums_plan(), SumsPlan.digest
    calls: list[int] = []

    def other(self: SumsPlan, *more: Any) -> bytes:
        calls.append(1)
        return digest(self, *more, len(calls) == 1)

    monkeypatch.setattr(SumsPlan, "digest", other)
    with pytest.raises(WireError, match="another plan"):
        sums_members(plan, VALUES)


@pytest.mark.slow
def test_processes_find_what_threads_find() -> None:
    links = ("threads", "processes")
    found = [MomentSearch(encryption="none", starts=1, link=link).fit(FRAME, parties=POSITIONS) for link in links]
    assert np.array_equal(found[0].strengths_, found[1].strengths_)
    assert found[0].sent_ == found[1].sent_


@pytest.mark.parametrize(
    ("rows", "settings", "named"),
    [
        (39, {}, "40"),
        (60, {"functions": 3}, "functions"),
        (99, {"receiver": "all"}, "100"),
        (600, {"epsilon": 4.0, "budget": 1.0}, "budget"),
        (600, {"epsilon": 1e-4, "clip": 1e6}, "epsilon"),
    ],
)
def test_what_can_not_be_summed_is_refused_beforehand(rows: int, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, check=Names(named)):
        sums_plan(rows, **settings).check()


def test_more_rows_for_each_function_leave_fewer_functions() -> None:
    usual, more = sums_plan(600), sums_plan(600, rows_a_function=50)
    assert more.rows_a_feature == 50
    assert 0 < more.room < usual.room
    assert 50 * sum(sorted(map(more.most_features, more.parties))[-2:]) <= 600
    with pytest.raises(InputError, check=Names("600", "rows_a_function")):
        sums_plan(600, rows_a_function=500).check()


@pytest.mark.parametrize(("asked", "receiver"), [(9, "validator"), (24, "all")])
def test_the_limit_is_raised_and_not_lowered(asked: int, receiver: str) -> None:
    with pytest.raises(InputError, check=Names("rows_a_function", str(asked), str(asked + 1))):
        sums_plan(rows_a_function=asked, receiver=receiver).check()
    sums_plan(rows_a_function=asked + 1, receiver=receiver).check()
    sums_plan(rows_a_function=asked, receiver=receiver, allow_small_n=True).check()


def test_few_rows_are_summed_where_that_is_allowed() -> None:
    plan = sums_plan(30, allow_small_n=True, functions=2)
    plan.check()
    members = sums_members(plan, {party: values[:30] for party, values in VALUES.items()})
    assert members["validator"].graph is not None


def test_noise_takes_functions_and_rows_away() -> None:
    """More noise leaves fewer functions, and a search that believes to have seen fewer rows."""
    functions = [sums_plan(20_000, epsilon=epsilon).functions for epsilon in (8.0, 2.0, 0.5, 0.1)]
    assert functions == sorted(functions, reverse=True)
    assert functions[0] > functions[-1] == 1
    assert not sums_plan(20_000, epsilon=8.0).powers
    plan = sums_plan(functions=1)
    (moments,) = opened(sums_members(plan, VALUES))
    every = AllFeatures.of(plan, sums_members(plan, VALUES)["validator"].layouts)
    exact = every.table(moments.gram, moments.noise, 600)
    rows = [every.table(moments.gram, np.full_like(moments.gram, noise), 600).rows for noise in (1e-6, 5.0, 50.0)]
    assert exact.rows == rows[0] == 600
    assert rows[0] > rows[1] > rows[2]
